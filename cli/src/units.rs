//! Sizes, shares and times as users write them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use baton_messages::Message;
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// An amount of memory as users write it: bytes, or a share of a whole. Its text is read back as the same amount.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Amount {
    /// `8GiB`, `8GB` (a power of ten), or a plain number of bytes.
    Bytes(u64),
    /// `90%`: from 0 to 100.
    Percent(f64),
}

/// A text that is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", baton_messages::no_amount(.0))]
pub struct NoAmount(String);

impl Amount {
    /// Returns the amount in bytes, for this whole, rounded down to 2 MiB.
    pub fn of(self, all: u64) -> u64 {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (all as f64 * percent / 100.0) as u64,
        };
        bytes - bytes % baton_contract::memory::GRANULE
    }
}

impl FromStr for Amount {
    type Err = NoAmount;

    fn from_str(word: &str) -> Result<Self, NoAmount> {
        let refused = || NoAmount(word.to_owned());
        if word.trim().ends_with('%') {
            return word.parse().map(|Percent(percent)| Self::Percent(percent)).map_err(|_| refused());
        }
        word.parse::<ByteSize>().map(|size| Self::Bytes(size.as_u64())).map_err(|_| refused())
    }
}

impl TryFrom<String> for Amount {
    type Error = NoAmount;

    fn try_from(word: String) -> Result<Self, NoAmount> {
        word.parse()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match self {
            // This text is read again, so it is not rounded.
            Self::Bytes(bytes) => match UNITS.into_iter().find(|(unit, _)| *bytes > 0 && bytes.is_multiple_of(*unit)) {
                Some((unit, name)) => write!(f, "{}{name}", bytes / unit),
                None => write!(f, "{bytes}B"),
            },
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl From<Amount> for String {
    fn from(amount: Amount) -> Self {
        amount.to_string()
    }
}

/// A part of something, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = Message;

    fn from_str(word: &str) -> Result<Self, Message> {
        let number = word.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
        number
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(Self)
            .ok_or_else(|| baton_messages::no_percentage(word))
    }
}

impl TryFrom<String> for Percent {
    type Error = Message;

    fn try_from(word: String) -> Result<Self, Message> {
        word.parse()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> Self {
        percent.to_string()
    }
}

/// A length of time: `100ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Duration);

impl FromStr for Period {
    type Err = Message;

    fn from_str(word: &str) -> Result<Self, Message> {
        humantime::parse_duration(word).map(Self).map_err(|error| baton_messages::no_time(word, error))
    }
}

impl TryFrom<String> for Period {
    type Error = Message;

    fn try_from(word: String) -> Result<Self, Message> {
        word.parse()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        // Without the spaces between the units.
        period.to_string().replace(' ', "")
    }
}

/// An address for connections: `127.0.0.1:7878`, or `7878` on this machine alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen(pub SocketAddr);

impl FromStr for Listen {
    type Err = Message;

    fn from_str(word: &str) -> Result<Self, Message> {
        let port = word.strip_prefix("localhost:").unwrap_or(word);
        match port.parse() {
            Ok(port) => Ok(Self((Ipv4Addr::LOCALHOST, port).into())),
            Err(_) => word.parse().map(Self).map_err(|_| baton_messages::no_address(word)),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = Message;

    fn try_from(word: String) -> Result<Self, Message> {
        word.parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

/// The GPUs of a driver: `all`, or some, counted from 0: `0,2`. For a program, also `any`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Word", into = "Word")]
pub enum Gpus {
    /// All that are visible.
    All,
    /// One of them, whichever is best for a program.
    Any,
    /// These, at least one.
    These(Vec<usize>),
}

/// The word of a setting that may be a plain number.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Word {
    Number(usize),
    Text(String),
}

impl Gpus {
    /// The only one, or the first one of those that are named.
    pub fn first(&self) -> usize {
        match self {
            Self::All | Self::Any => 0,
            Self::These(numbers) => numbers.first().copied().unwrap_or(0),
        }
    }
}

impl FromStr for Gpus {
    type Err = Message;

    fn from_str(word: &str) -> Result<Self, Message> {
        match word {
            "all" => return Ok(Self::All),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        let numbers: Option<Vec<usize>> = word.split(',').map(|number| number.trim().parse().ok()).collect();
        let differ = |numbers: &Vec<usize>| numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
        numbers.filter(differ).map(Self::These).ok_or_else(|| baton_messages::no_gpus(word))
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Any => f.write_str("any"),
            Self::These(numbers) => f.write_str(&numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

impl TryFrom<Word> for Gpus {
    type Error = Message;

    fn try_from(word: Word) -> Result<Self, Message> {
        match word {
            Word::Number(number) => Ok(Self::These(vec![number])),
            Word::Text(text) => text.parse(),
        }
    }
}

impl From<Gpus> for Word {
    fn from(gpus: Gpus) -> Self {
        match gpus {
            Gpus::These(numbers) if numbers.len() == 1 => Self::Number(numbers[0]),
            gpus => Self::Text(gpus.to_string()),
        }
    }
}

/// Users by their numbers: `1000-1999,65534`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Users(pub Vec<RangeInclusive<u32>>);

impl FromStr for Users {
    type Err = Message;

    fn from_str(word: &str) -> Result<Self, Message> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let all: Option<Vec<_>> = word.split(',').map(range).collect();
        all.map(Self).ok_or_else(|| baton_messages::no_users(word))
    }
}

impl TryFrom<String> for Users {
    type Error = Message;

    fn try_from(word: String) -> Result<Self, Message> {
        word.parse()
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (one, other) if one == other => write!(f, "{comma}{one}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl From<Users> for String {
    fn from(users: Users) -> Self {
        users.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_sizes_or_shares() {
        assert_eq!("8GiB".parse(), Ok(Amount::Bytes(8 << 30)));
        assert_eq!("512 MiB".parse(), Ok(Amount::Bytes(512 << 20)));
        assert_eq!("90%".parse(), Ok(Amount::Percent(90.0)));
        for wrong in ["", "a lot", "101%", "-1%", "8Gx"] {
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
        assert_eq!(Amount::Percent(50.0).of(10 << 20), 4 << 20, "whole 2 MiB");
    }

    #[test]
    fn gpus_are_numbers_or_all_and_one_is_a_number_in_files_too() {
        for (word, first) in [("all", 0), ("0", 0), ("3,0", 3)] {
            let gpus = word.parse::<Gpus>().expect("GPUs");
            assert_eq!((gpus.to_string().as_str(), gpus.first()), (word, first));
            let text = toml::Value::try_from(&gpus).expect("a value");
            assert_eq!((text.is_integer(), text.try_into()), (word == "0", Ok(gpus)));
        }
        for wrong in ["", "one", "0,", "-1", "0,1,0"] {
            assert!(wrong.parse::<Gpus>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn users_are_numbers_and_ranges_of_them() {
        for (word, shown) in [("7", "7"), ("1000-1999, 65534", "1000-1999,65534"), ("0-4294967295", "0-4294967295")] {
            assert_eq!(word.parse::<Users>().map(String::from), Ok(shown.to_owned()));
        }
        for wrong in ["", "root", "9-3", "1-", "1,,2", "-5", "0-4294967296"] {
            assert!(wrong.parse::<Users>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_alone_is_on_this_machine_alone() {
        for (word, shown) in [
            ("7878", "127.0.0.1:7878"),
            ("localhost:7878", "127.0.0.1:7878"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(word.parse::<Listen>().map(String::from), Ok(shown.to_owned()));
        }
        for wrong in ["", "host:80", "127.0.0.1", "70000"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
