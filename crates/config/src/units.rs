//! Value formats: durations, sizes, numbers and words.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use super::application::{
    BootConnections, Isolation, Listens, Preload, Preloading, RequestSettings, WorkerMode,
};
use super::model::{CoreLimit, LogFormat, LogLevel, OnError, OnSigterm, ReloadWhen};

/// Ten years, so that sums of times can't overflow.
const MAX_DURATION: Duration = Duration::from_secs(3650 * 86_400);

pub(super) trait Form {
    type Value: Clone;

    fn value(&self) -> &Self::Value;
}

/// Defines types of written values: newtypes of the values that they stand for.
macro_rules! forms {
    ($($(#[$doc:meta])* $form:ident($value:ty),)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $form(pub(crate) $value);

        impl Form for $form {
            type Value = $value;

            fn value(&self) -> &$value {
                &self.0
            }
        }
    )*};
}

forms! {
    /// Seconds, or a number with a unit.
    Time(Duration),
    /// Bytes, or a number with `K`, `M` or `G`.
    Size(u64),
    /// A size or `unlimited`.
    Core(CoreLimit),
    /// Permission bits as an octal string.
    FileMode(u32),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
    /// One or several non-negative numbers.
    Counts(Vec<u64>),
    /// A choice, or an array of names.
    RequestRule(RequestSettings),
    Level(LogLevel),
    Format(LogFormat),
    Facility(u8),
    Reload(ReloadWhen),
    ErrorRule(OnError),
    TermRule(OnSigterm),
    /// A flag or `"socket"`.
    Handshake(Listens),
    /// A flag or `"auto"`.
    PreloadRule(Preload),
    PreloaderChoice(Preloading),
    WorkerModeChoice(WorkerMode),
    IsolationChoice(Isolation),
    ConnectionsChoice(BootConnections),
}

/// A number whose range is checked where it is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) i64);

/// A number, or `None` for `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Children(pub(super) Option<i64>);

/// A string, number or flag for php.ini.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IniValue(pub(super) String);

/// Soft and hard limit: `1024`, `"512M"`, `"unlimited"`, `"1024:4096"`. `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds(pub(super) Option<u64>, pub(super) Option<u64>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    Static,
    Dynamic,
    Ondemand,
}

const MANAGERS: [(&str, Manager); 3] = [
    ("static", Manager::Static),
    ("dynamic", Manager::Dynamic),
    ("ondemand", Manager::Ondemand),
];

impl Manager {
    pub(super) fn name(self) -> &'static str {
        let found = MANAGERS.iter().find(|(_, manager)| *manager == self);
        found.map_or("", |(name, _)| name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Routing {
    Pool,
    Application,
}

/// `10`, `"10"`, `"500ms"`, `"10s"`, `"5m"`, `"2h"`, `"1d"`.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let duration = Duration::from_millis(number.checked_mul(milliseconds)?);
    (duration <= MAX_DURATION).then_some(duration)
}

/// `65536`, `"64K"`, `"1M"`, `"2G"`; the units are powers of 1024.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let bytes: u64 = match unit {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes)
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// Suggests a size or duration with a valid unit, in quotes: `"128M"` for `"128MB"`. `expected`: the expected form.
pub(super) fn meant(expected: &str, found: &str) -> Option<String> {
    let text = found.strip_prefix('"')?.strip_suffix('"')?;
    let (number, unit) = number_and_unit(text.trim())?;
    let unit = unit.trim().to_ascii_lowercase();
    let is = |what: &str| expected.starts_with(what);
    let unit = if is("a size") {
        match unit.as_str() {
            "b" | "byte" | "bytes" => "",
            "k" | "kb" | "kib" => "K",
            "m" | "mb" | "mib" => "M",
            "g" | "gb" | "gib" => "G",
            _ => return None,
        }
    } else if is("a duration") {
        match unit.as_str() {
            "ms" | "msec" | "millisecond" | "milliseconds" => "ms",
            "s" | "sec" | "secs" | "second" | "seconds" => "s",
            "m" | "min" | "mins" | "minute" | "minutes" => "m",
            "h" | "hr" | "hour" | "hours" => "h",
            "d" | "day" | "days" => "d",
            _ => return None,
        }
    } else {
        return None;
    };
    Some(format!("\"{number}{unit}\""))
}

fn octal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = digits.then(|| u32::from_str_radix(text, 8).ok())??;
    (mode <= 0o777).then_some(mode)
}

fn core_limit(text: &str) -> Option<CoreLimit> {
    match text {
        "unlimited" => Some(CoreLimit::Unlimited),
        _ => size(text).map(CoreLimit::Bytes),
    }
}

fn bounds(text: &str) -> Option<Bounds> {
    let one = |text: &str| match text {
        "unlimited" => Some(None),
        _ => size(text).map(Some),
    };
    let (soft, hard) = text.split_once(':').unwrap_or((text, text));
    let (soft, hard) = (one(soft)?, one(hard)?);
    let fits = hard.is_none_or(|hard| soft.is_some_and(|soft| soft <= hard));
    fits.then_some(Bounds(soft, hard))
}

/// The value of a word.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value)
}

/// The value of a word in capital or small letters.
fn any_case<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    word(&text.to_ascii_lowercase(), words)
}

const LEVELS: [(&str, LogLevel); 6] = [
    ("debug", LogLevel::Debug),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("warn", LogLevel::Warning),
    ("error", LogLevel::Error),
    ("alert", LogLevel::Alert),
];

pub(super) fn level(text: &str) -> Option<LogLevel> {
    any_case(text, &LEVELS)
}

pub(super) const FACILITIES: [(&str, u8); 20] = [
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

pub(super) fn facility(name: &str) -> Option<u8> {
    any_case(name, &FACILITIES)
}

pub(super) fn manager(text: &str) -> Option<Manager> {
    any_case(text, &MANAGERS)
}

/// Implements `Deserialize`: the expected form, and the accepted TOML types with their parsers.
macro_rules! form {
    ($type:ident, $expected:literal $(, str $from_str:expr)? $(, int $from_int:expr)? $(, flag $from_flag:expr)? $(, float $from_float:expr)? $(, texts $from_texts:expr)?) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct FormVisitor;
                impl<'de> Visitor<'de> for FormVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    $(fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        let read: fn(&str) -> Option<$type> = $from_str;
                        read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
                    })?
                    $(fn visit_i64<E: Error>(self, number: i64) -> Result<$type, E> {
                        let read: fn(i64) -> Option<$type> = $from_int;
                        read(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
                    })?
                    $(fn visit_bool<E: Error>(self, flag: bool) -> Result<$type, E> {
                        let read: fn(bool) -> $type = $from_flag;
                        Ok(read(flag))
                    })?
                    $(fn visit_f64<E: Error>(self, number: f64) -> Result<$type, E> {
                        let read: fn(f64) -> $type = $from_float;
                        Ok(read(number))
                    })?
                    $(fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<$type, A::Error> {
                        let read: fn(Vec<String>) -> $type = $from_texts;
                        let mut texts = Vec::new();
                        while let Some(Text(text)) = items.next_element()? {
                            texts.push(text);
                        }
                        Ok(read(texts))
                    })?
                }
                deserializer.deserialize_any(FormVisitor)
            }
        }
    };
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FormVisitor;
        impl<'de> Visitor<'de> for FormVisitor {
            type Value = Counts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests, or an array of numbers; write 1000, or [50, 100, 1000]")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Counts, E> {
                let count = u64::try_from(number);
                let count = count.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))?;
                Ok(Counts(vec![count]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Counts, A::Error> {
                let mut counts = Vec::new();
                while let Some(Whole(number)) = items.next_element()? {
                    let count = u64::try_from(number);
                    counts
                        .push(count.map_err(|_| A::Error::invalid_value(Unexpected::Signed(number), &self))?);
                }
                Ok(Counts(counts))
            }
        }
        deserializer.deserialize_any(FormVisitor)
    }
}

form!(
    Time,
    "a duration; write whole seconds, or a whole number with ms, s, m, h or d, for example \"10s\", at most \"3650d\"",
    str | text | duration(text).map(Time),
    int | number | duration(&number.to_string()).map(Time)
);
form!(
    Size,
    "a size; write bytes, or a whole number with K, M or G, for example \"64K\"",
    str | text | size(text).map(Size),
    int | number | u64::try_from(number).ok().map(Size)
);
form!(
    Core,
    "a size; write bytes, a whole number with K, M or G, or \"unlimited\"",
    str | text | core_limit(text).map(Core),
    int | number
        | u64::try_from(number)
            .ok()
            .map(|bytes| Core(CoreLimit::Bytes(bytes)))
);
form!(
    Bounds,
    "a limit; write a number, a size such as \"512M\", \"unlimited\", or two limits as \"SOFT:HARD\"",
    str bounds,
    int | number | u64::try_from(number).ok().map(|number| Bounds(Some(number), Some(number)))
);
form!(
    FileMode,
    "a file mode; write octal digits in quotes, at most \"0777\", for example \"0660\"",
    str | text | octal(text).map(FileMode)
);
form!(
    Whole,
    "a whole number; write digits without quotes, for example 10",
    int | number | Some(Whole(number))
);
form!(Flag, "true or false, without quotes", flag Flag);
form!(
    Text,
    "a string; write text in quotes, without NUL characters",
    str | text | (!text.contains('\0')).then(|| Text(text.to_owned()))
);
form!(Texts, "an array of strings; write [\"one\", \"two\"]", texts Texts);
form!(
    RequestRule,
    "a choice of settings; write \"harmless\", \"all\", \"none\", or names as [\"memory_limit\"]",
    str | text | RequestSettings::from_word(text).map(RequestRule),
    texts | names | RequestRule(RequestSettings::Only(names))
);
form!(
    IniValue,
    "a php.ini value; write a string in quotes, a number, true or false",
    str | text | (!text.contains('\0')).then(|| IniValue(text.to_owned())),
    int | number | Some(IniValue(number.to_string())),
    flag | flag | IniValue(if flag { "1" } else { "0" }.to_owned()),
    float | number | IniValue(number.to_string())
);
form!(
    Level,
    "a log level; write \"debug\", \"notice\", \"warning\", \"error\" or \"alert\"",
    str | text | level(text).map(Level)
);
form!(
    Format,
    "a log format; write \"text\" or \"json\"",
    str | text | word(text, &[("text", LogFormat::Text), ("json", LogFormat::Json)]).map(Format)
);
form!(
    Facility,
    "a syslog facility; write \"daemon\", \"user\", \"local0\" to \"local7\", or another of syslog(3)",
    str | text | facility(text).map(Facility)
);
form!(
    Manager,
    "a process manager; write \"static\", \"dynamic\" or \"ondemand\"",
    str manager
);
form!(
    Routing,
    "a kind of routing; write \"pool\" or \"application\"",
    str | text
        | word(
            text,
            &[("pool", Routing::Pool), ("application", Routing::Application)]
        )
);
form!(
    Reload,
    "a kind of reload; write \"changed\" or \"always\"",
    str | text
        | any_case(
            text,
            &[("changed", ReloadWhen::Changed), ("always", ReloadWhen::Always)]
        )
        .map(Reload)
);
form!(
    ErrorRule,
    "a rule for pools with errors; write \"fail\" or \"skip\"",
    str | text | word(text, &[("fail", OnError::Fail), ("skip", OnError::Skip)]).map(ErrorRule)
);
form!(
    TermRule,
    "what SIGTERM can mean; write \"terminate\" or \"finish\"",
    str | text
        | word(
            text,
            &[("terminate", OnSigterm::Terminate), ("finish", OnSigterm::Finish)]
        )
        .map(TermRule)
);
form!(
    Children,
    "a number of workers; write digits without quotes, for example 10, or \"auto\"",
    str | text | (text == "auto").then_some(Children(None)),
    int | number | Some(Children(Some(number)))
);
form!(
    Handshake,
    "a kind of handshake; write true, false or \"socket\"",
    str | text | (text == "socket").then_some(Handshake(Listens::Socket)),
    flag | flag | Handshake(if flag { Listens::Handshake } else { Listens::Port })
);
form!(
    PreloadRule,
    "a place to load the application; write \"auto\", true or false",
    str | text | (text == "auto").then_some(PreloadRule(Preload::Auto)),
    flag | flag | PreloadRule(if flag { Preload::Always } else { Preload::Never })
);
form!(
    PreloaderChoice,
    "a kind of preloader; write \"own\", or \"zygote\", which has taken the place of \"shared\"",
    str | text | Preloading::from_word(text).map(PreloaderChoice)
);
form!(
    WorkerModeChoice,
    "a way to run a worker script; write \"loop\" or \"snapshot\"",
    str | text | WorkerMode::from_word(text).map(WorkerModeChoice)
);
form!(
    IsolationChoice,
    "a way to get rid of a request; write \"rewind\", or \"auto\" to boot the application in each request where the kernel can't put a worker back",
    str | text | Isolation::from_word(text).map(IsolationChoice)
);
form!(
    ConnectionsChoice,
    "a way to treat connections of the boot; write \"cut\", \"refuse\" or \"keep\"",
    str | text | word(text, &CONNECTIONS).map(ConnectionsChoice)
);

const CONNECTIONS: [(&str, BootConnections); 3] = [
    ("cut", BootConnections::Cut),
    ("refuse", BootConnections::Refuse),
    ("keep", BootConnections::Keep),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10", Some(10_000)),
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("3650d", Some(315_360_000_000)),
            ("3651d", None),
            ("99999999999999999999", None),
            ("18446744073709551615d", None),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1.5s", None),
            ("1 s", None),
            ("1S", None),
            ("1w", None),
        ] {
            assert_eq!(duration(text), expected.map(Duration::from_millis), "{text}");
        }
        for (text, expected) in [
            ("0", Some(0)),
            ("65536", Some(65_536)),
            ("64K", Some(65_536)),
            ("1m", Some(1 << 20)),
            ("2G", Some(2 << 30)),
            ("1T", None),
            ("18446744073709551615K", None),
            ("K", None),
            ("", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }

    #[test]
    fn limits_are_one_or_two() {
        for (text, expected) in [
            ("1024", Some((Some(1024), Some(1024)))),
            ("unlimited", Some((None, None))),
            ("1K:unlimited", Some((Some(1024), None))),
            ("2:3", Some((Some(2), Some(3)))),
            ("3:2", None),
            ("unlimited:3", None),
            ("1:2:3", None),
            ("", None),
        ] {
            let expected = expected.map(|(soft, hard)| Bounds(soft, hard));
            assert_eq!(bounds(text), expected, "{text}");
        }
    }
}
