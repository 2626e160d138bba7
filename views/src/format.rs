//! Times, rates and names, for people to read.

/// A length of time, in nanoseconds, with about three digits.
pub fn duration(ns: u64) -> String {
    let (number, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        1_000_000_000..120_000_000_000 => (ns as f64 / 1e9, "s"),
        120_000_000_000..7_200_000_000_000 => (ns as f64 / 60e9, "min"),
        _ => (ns as f64 / 3600e9, "h"),
    };
    let digits = usize::from(number < 99.95) + usize::from(number < 9.995);
    format!("{number:.digits$} {unit}")
}

/// A length of time, in milliseconds.
pub fn duration_ms(ms: f64) -> String {
    duration((ms.max(0.0) * 1e6) as u64)
}

/// An amount of memory, as `baton status` shows it.
pub fn bytes(bytes: u64) -> String {
    baton_contract::memory::size(bytes)
}

/// Bytes a second, in the unit of buses.
pub fn rate(per_second: f64) -> String {
    if per_second >= 9.95e8 { format!("{:.1} GB/s", per_second / 1e9) } else { format!("{:.1} MB/s", per_second / 1e6) }
}

/// A part of a whole, from 0 to 1.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent > 0.0 && percent < 0.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Escapes an untrusted text for XML and HTML, between tags or in quotes. Replaces characters that XML does not allow, and those that
/// would turn the direction of the text that follows.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\r' | '\t' => escaped.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Cuts a text to at most `most` letters.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let shown = [999, 1_234, 56_789, 999_960, 1_500_000, 31_400_000_000, 600_000_000_000].map(duration);
        assert_eq!(shown, ["999 ns", "1.23 µs", "56.8 µs", "1000 µs", "1.50 ms", "31.4 s", "10.0 min"]);
        assert_eq!((rate(25.3e9).as_str(), rate(3e6).as_str()), ("25.3 GB/s", "3.0 MB/s"));
        assert_eq!([0.0, 0.004, 0.5].map(percent), ["0 %", "0.4 %", "50 %"]);
    }

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(escaped("<a b='c'>&\"\u{0}\u{202e}\n"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}\u{fffd} ");
        assert_eq!((shortened("training", 5).as_str(), shortened("é", 5).as_str()), ("trai…", "é"));
    }
}
