//! Value formats: durations, sizes, numbers and words.

use std::time::Duration;

use super::application::{
    BootConnections, Isolation, Listens, Preload, Preloading, RequestSettings, WorkerMode,
};
use super::error::Kind;
use super::lanes::LaneRule;
use super::model::{CoreLimit, LogFormat, LogLevel, OnError, OnSigterm, ReloadWhen};
use super::overload::{Abandoned, QueueTime};
use super::value::{Parse, Plain};

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
    Percentages(Vec<u64>),
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
    AbandonedRule(Abandoned),
    /// A duration or `"auto"`.
    QueueLimit(QueueTime),
    /// A word, or an array of rules. Empty: off.
    LaneRules(Vec<LaneRule>),
    /// A number, or `None` for `"auto"`.
    LaneReserve(Option<i64>),
}

/// A number. The resolving code checks its range.
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
pub enum Manager {
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
    pub fn name(self) -> &'static str {
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
    // A valid unit with a number out of range has no better form.
    Some(format!("\"{number}{unit}\"")).filter(|meant| meant != found)
}

fn octal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = digits.then(|| u32::from_str_radix(text, 8).ok())??;
    (mode <= 0o777).then_some(mode)
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

/// The value of a word in capital or small letters.
fn any_case<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value)
}

const LEVELS: [(&str, LogLevel); 6] = [
    ("debug", LogLevel::Debug),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("warn", LogLevel::Warning),
    ("error", LogLevel::Error),
    ("alert", LogLevel::Alert),
];

pub fn level(text: &str) -> Option<LogLevel> {
    any_case(text, &LEVELS)
}

pub const FACILITIES: [(&str, u8); 20] = [
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

pub fn facility(name: &str) -> Option<u8> {
    any_case(name, &FACILITIES)
}

pub fn manager(text: &str) -> Option<Manager> {
    any_case(text, &MANAGERS)
}

/// Defines a type's values, and their description for messages.
macro_rules! form {
    ($type:ident, $expected:expr, $($written:pat => $value:expr),+ $(,)?) => {
        impl Parse for $type {
            fn parse(value: &Plain<'_>) -> Result<$type, Kind> {
                let found = match value {
                    $($written => $value,)+
                    _ => None,
                };
                found.ok_or_else(|| value.is_not($expected))
            }
        }
    };
}

form!(
    Time,
    "a duration; write whole seconds, or a whole number with ms, s, m, h or d, for example \"10s\", at most \"3650d\"",
    Plain::Text(text) => duration(text).map(Time),
    Plain::Whole(number) => duration(&number.to_string()).map(Time)
);
form!(
    Size,
    "a size; write bytes, or a whole number with K, M or G, for example \"64K\"",
    Plain::Text(text) => size(text).map(Size),
    Plain::Whole(number) => u64::try_from(*number).ok().map(Size)
);
form!(
    Core,
    "a size; write bytes, a whole number with K, M or G, or \"unlimited\"",
    Plain::Text("unlimited") => Some(Core(CoreLimit::Unlimited)),
    Plain::Text(text) => size(text).map(|bytes| Core(CoreLimit::Bytes(bytes))),
    Plain::Whole(number) => u64::try_from(*number).ok().map(|bytes| Core(CoreLimit::Bytes(bytes)))
);
form!(
    Bounds,
    "a limit; write a number, a size such as \"512M\", \"unlimited\", or two limits as \"SOFT:HARD\"",
    Plain::Text(text) => bounds(text),
    Plain::Whole(number) => u64::try_from(*number).ok().map(|number| Bounds(Some(number), Some(number)))
);
form!(
    FileMode,
    "a file mode; write octal digits in quotes, at most \"0777\", for example \"0660\"",
    Plain::Text(text) => octal(text).map(FileMode)
);
form!(
    Whole,
    "a whole number; write digits without quotes, for example 10",
    Plain::Whole(number) => Some(Whole(*number))
);
form!(Flag, "true or false, without quotes", Plain::Flag(flag) => Some(Flag(*flag)));
form!(
    Text,
    "a string; write text in quotes, without NUL characters",
    Plain::Text(text) => (!text.contains('\0')).then(|| Text((*text).to_owned()))
);
form!(
    Texts,
    "an array of strings; write [\"one\", \"two\"]",
    Plain::List(items) => Some(Texts(texts(items)?))
);
const PERCENTAGES: &str = "a list of percentages; write [1, 10, 50], or [] for all requests at once";
const COUNTS: &str = "a number of requests, or an array of numbers; write 1000, or [50, 100, 1000]";
form!(
    Counts,
    COUNTS,
    Plain::Whole(number) => u64::try_from(*number).ok().map(|count| Counts(vec![count])),
    Plain::List(items) => Some(Counts(counts(items, COUNTS)?))
);
form!(
    Percentages,
    PERCENTAGES,
    Plain::List(items) => Some(Percentages(counts(items, PERCENTAGES)?))
);
form!(
    RequestRule,
    "a choice of settings; write \"harmless\", \"all\", \"none\", or names as [\"memory_limit\"]",
    Plain::Text(text) => RequestSettings::from_word(text).map(RequestRule),
    Plain::List(items) => Some(RequestRule(RequestSettings::Only(texts(items)?)))
);
form!(
    IniValue,
    "a php.ini value; write a string in quotes, a number, true or false",
    Plain::Text(text) => (!text.contains('\0')).then(|| IniValue((*text).to_owned())),
    Plain::Whole(number) => Some(IniValue(number.to_string())),
    Plain::Flag(flag) => Some(IniValue(u8::from(*flag).to_string())),
    Plain::Float(number) => Some(IniValue(number.to_string()))
);
form!(
    Level,
    "a log level; write \"debug\", \"notice\", \"warning\", \"error\" or \"alert\"",
    Plain::Text(text) => level(text).map(Level)
);
form!(
    Format,
    "a log format; write \"text\" or \"json\"",
    Plain::Text("text") => Some(Format(LogFormat::Text)),
    Plain::Text("json") => Some(Format(LogFormat::Json))
);
form!(
    Facility,
    "a syslog facility; write \"daemon\", \"user\", \"local0\" to \"local7\", or another of syslog(3)",
    Plain::Text(text) => facility(text).map(Facility)
);
form!(
    Manager,
    "a process manager; write \"static\", \"dynamic\" or \"ondemand\"",
    Plain::Text(text) => manager(text)
);
form!(
    Children,
    "a number of workers; write digits without quotes, for example 10, or \"auto\"",
    Plain::Text("auto") => Some(Children(None)),
    Plain::Whole(number) => Some(Children(Some(*number)))
);
form!(
    Routing,
    "a kind of routing; write \"pool\" or \"application\"",
    Plain::Text("pool") => Some(Routing::Pool),
    Plain::Text("application") => Some(Routing::Application)
);
form!(
    Reload,
    "a kind of reload; write \"changed\" or \"always\"",
    Plain::Text(text) => any_case(text, &[("changed", ReloadWhen::Changed), ("always", ReloadWhen::Always)]).map(Reload)
);
form!(
    ErrorRule,
    "a rule for pools with errors; write \"fail\" or \"skip\"",
    Plain::Text("fail") => Some(ErrorRule(OnError::Fail)),
    Plain::Text("skip") => Some(ErrorRule(OnError::Skip))
);
form!(
    TermRule,
    "what SIGTERM can mean; write \"terminate\" or \"finish\"",
    Plain::Text("terminate") => Some(TermRule(OnSigterm::Terminate)),
    Plain::Text("finish") => Some(TermRule(OnSigterm::Finish))
);
form!(
    Handshake,
    "a kind of handshake; write true, false or \"socket\"",
    Plain::Text("socket") => Some(Handshake(Listens::Socket)),
    Plain::Flag(true) => Some(Handshake(Listens::Handshake)),
    Plain::Flag(false) => Some(Handshake(Listens::Port))
);
form!(
    PreloadRule,
    "a place to load the application; write \"auto\", true or false",
    Plain::Text("auto") => Some(PreloadRule(Preload::Auto)),
    Plain::Flag(true) => Some(PreloadRule(Preload::Always)),
    Plain::Flag(false) => Some(PreloadRule(Preload::Never))
);
form!(
    PreloaderChoice,
    "a kind of preloader; write \"own\", or \"zygote\", which has taken the place of \"shared\"",
    Plain::Text(text) => Preloading::from_word(text).map(PreloaderChoice)
);
form!(
    WorkerModeChoice,
    "a way to run a worker script; write \"loop\" or \"snapshot\"",
    Plain::Text("loop") => Some(WorkerModeChoice(WorkerMode::Loop)),
    Plain::Text("snapshot") => Some(WorkerModeChoice(WorkerMode::Snapshot))
);
form!(
    IsolationChoice,
    "a way to get rid of a request; write \"rewind\", or \"auto\" to boot the application in each request where the kernel can't put a worker back",
    Plain::Text("auto") => Some(IsolationChoice(Isolation::Auto)),
    Plain::Text("rewind") => Some(IsolationChoice(Isolation::Rewind))
);
form!(
    ConnectionsChoice,
    "a way to treat connections of the boot; write \"cut\", \"refuse\" or \"keep\"",
    Plain::Text("cut") => Some(ConnectionsChoice(BootConnections::Cut)),
    Plain::Text("refuse") => Some(ConnectionsChoice(BootConnections::Refuse)),
    Plain::Text("keep") => Some(ConnectionsChoice(BootConnections::Keep))
);

form!(
    AbandonedRule,
    "a rule for requests whose client has left; write \"skip\", \"run\" or \"skip-half-closed\"",
    Plain::Text("skip") => Some(AbandonedRule(Abandoned::Skip)),
    Plain::Text("run") => Some(AbandonedRule(Abandoned::Run)),
    Plain::Text("skip-half-closed") => Some(AbandonedRule(Abandoned::SkipHalfClosed))
);
form!(
    QueueLimit,
    "a duration; write whole seconds, or a whole number with ms, s, m, h or d, for example \"10s\", at most \"3650d\", or \"auto\"",
    Plain::Text("auto") => Some(QueueLimit(QueueTime::Auto)),
    Plain::Text(text) => duration(text).map(queue_limit),
    Plain::Whole(number) => duration(&number.to_string()).map(queue_limit)
);

/// 0 is no limit.
fn queue_limit(time: Duration) -> QueueLimit {
    QueueLimit(match time.is_zero() {
        true => QueueTime::Endless,
        false => QueueTime::Fixed(time),
    })
}

fn texts(items: &[Plain<'_>]) -> Result<Vec<String>, Kind> {
    let text = |item| Text::parse(item).map(|Text(text)| text);
    items.iter().map(text).collect()
}

fn counts(items: &[Plain<'_>], form: &'static str) -> Result<Vec<u64>, Kind> {
    let count = |item: &Plain<'_>| {
        let Whole(number) = Whole::parse(item)?;
        u64::try_from(number).map_err(|_| item.is_not(form))
    };
    items.iter().map(count).collect()
}

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
