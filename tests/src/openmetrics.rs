//! Reads OpenMetrics as strictly as its specification has it, as far as Baton uses it.

use std::collections::{BTreeMap, BTreeSet};

/// A series' name and labels.
pub type Series = (String, BTreeMap<String, String>);

/// The contents of a text.
#[derive(Clone, Debug, Default)]
pub struct Exposed {
    /// Kind of each metric, by the name that describes it.
    pub kinds: BTreeMap<String, String>,
    /// Each series' value.
    pub values: BTreeMap<Series, f64>,
}

impl Exposed {
    /// The series of a name whose labels have these among them, added up.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, labels).map(|(_, value)| value).sum()
    }

    /// The series of a name whose labels have these among them.
    pub fn of<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = (&'a Series, f64)> {
        self.values
            .iter()
            .filter(move |((series, there), _)| {
                series == name && labels.iter().all(|(key, value)| there.get(*key).is_some_and(|there| there == value))
            })
            .map(|(series, value)| (series, *value))
    }

    /// True if a series only ever goes up.
    pub fn only_goes_up((name, _): &Series) -> bool {
        name.ends_with("_total") || name.ends_with("_bucket") || name.ends_with("_count") || name.ends_with("_sum")
    }
}

/// Reads a text.
///
/// # Panics
///
/// When it is no OpenMetrics: with the line that is wrong.
#[track_caller]
pub fn read(text: &str) -> Exposed {
    let mut exposed = Exposed::default();
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("it does not end with # EOF: {text}"));
    // The metric whose lines follow, with its unit; and all that were described.
    let (mut now, mut seen) = (String::new(), BTreeSet::new());
    for line in body.lines() {
        let wrong = |why: &str| -> ! { panic!("{why}: {line}") };
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let [Some(kind), Some(name), Some(rest)] = [words.next(), words.next(), words.next()] else {
                wrong("a description without an end")
            };
            if kind == "HELP" || name != now {
                name.clone_into(&mut now);
                if !seen.insert(name.to_owned()) {
                    wrong("described twice");
                }
            }
            match kind {
                "HELP" => {}
                "TYPE" => {
                    if !["counter", "gauge", "histogram", "info"].contains(&rest) {
                        wrong("no such type");
                    }
                    exposed.kinds.insert(name.to_owned(), rest.to_owned());
                }
                "UNIT" if name.ends_with(&format!("_{rest}")) => {}
                _ => wrong("no such description, or a unit that the name does not end with"),
            }
            continue;
        }
        let (series, value) = sample(line).unwrap_or_else(|why| wrong(why));
        let Some(kind) = exposed.kinds.get(&now) else { wrong("of no type") };
        let suffix = series.0.strip_prefix(now.as_str()).unwrap_or_else(|| wrong("not what was described"));
        let fits = match kind.as_str() {
            "counter" => suffix == "_total" && value >= 0.0,
            "info" => suffix == "_info" && value == 1.0,
            "histogram" => matches!(suffix, "_bucket" | "_sum" | "_count") && value >= 0.0,
            _ => suffix.is_empty(),
        };
        if !fits || (suffix == "_bucket") != series.1.contains_key("le") {
            wrong("not of its type");
        }
        if exposed.values.insert(series, value).is_some() {
            wrong("twice");
        }
    }
    check_histograms(&exposed);
    exposed
}

/// Buckets only grow, the last is all, and all is the count.
fn check_histograms(exposed: &Exposed) {
    let mut all: BTreeMap<Series, Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), value) in &exposed.values {
        if let Some(name) = name.strip_suffix("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").expect("checked");
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") };
            all.entry((name.to_owned(), labels)).or_default().push((bound, *value));
        }
    }
    for ((name, labels), mut buckets) in all {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?}: {buckets:?}");
        let (bound, last) = buckets.pop().expect("one at least");
        assert!(bound.is_infinite(), "{name} {labels:?} has no +Inf");
        let count = exposed.values.get(&(format!("{name}_count"), labels.clone()));
        assert_eq!(count, Some(&last), "{name} {labels:?}");
        assert!(exposed.values.contains_key(&(format!("{name}_sum"), labels)), "{name}");
    }
}

fn is_name(text: &str, colon: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || colon && c == ':';
    text.chars().next().is_some_and(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// One line with a value.
fn sample(line: &str) -> Result<(Series, f64), &'static str> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err("no name");
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        let mut inside = inside;
        loop {
            let (key, value) = inside.split_once("=\"").ok_or("a label without a value")?;
            if !is_name(key, false) {
                return Err("no name of a label");
            }
            let (value, after) = unescaped(value)?;
            if labels.insert(key.to_owned(), value).is_some() {
                return Err("a label twice");
            }
            match after.strip_prefix(',') {
                Some(after) => inside = after,
                None => break rest = after.strip_prefix('}').ok_or("labels without an end")?,
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    let value = value.parse().map_err(|_| "no number")?;
    Ok(((name.to_owned(), labels), value))
}

/// A label's value, and what follows its closing quote.
fn unescaped(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some(c @ ('\\' | '"')) => value.push(c),
                _ => return Err("an escape that there is not"),
            },
            c => value.push(c),
        }
    }
    Err("a value without an end")
}
