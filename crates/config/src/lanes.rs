//! The lanes of a pool: rules that give requests a lane.

use crate::error::Kind;
use crate::units::{LaneReserve, LaneRules};
use crate::value::{Parse, Plain, quoted};
use forkyard_protocol::lanes::Lane;
use serde::{Deserialize, Serialize};

const EXPECTED: &str =
    "\"off\", \"wordpress\", or an array of rules; write [{ lane = \"bots\", agent = \"*bot*\" }]";
const WORDPRESS: &str = "wordpress";

/// The lanes of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lanes {
    /// The first that fits gives a request its lane; without one: people.
    pub rules: Vec<LaneRule>,
    /// How many workers low lanes leave idle; `None`: as many as people need.
    pub reserve: Option<u32>,
    /// The most workers in addition to `max_children`.
    pub extra: u32,
}

/// Gives requests a lane. A condition is a list of patterns, and fits if one of them does; an empty list fits all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRule {
    pub lane: Lane,
    /// Patterns for the path, or with a question mark for the path with the query.
    #[serde(default)]
    pub uri: Vec<String>,
    #[serde(default)]
    pub method: Vec<String>,
    /// Patterns for the name of a cookie.
    #[serde(default)]
    pub cookie: Vec<String>,
    /// Patterns for the name of a cookie that the request doesn't have.
    #[serde(default)]
    pub no_cookie: Vec<String>,
    /// Patterns for the agent, in letters of either case.
    #[serde(default)]
    pub agent: Vec<String>,
}

impl LaneRule {
    fn new(lane: Lane) -> LaneRule {
        LaneRule {
            lane,
            uri: Vec::new(),
            method: Vec::new(),
            cookie: Vec::new(),
            no_cookie: Vec::new(),
            agent: Vec::new(),
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns the rules for WordPress with WooCommerce. The order matters: payment providers have no browser's agent, and
/// WordPress starts wp-cron.php itself.
pub fn wordpress_lanes() -> Vec<LaneRule> {
    const KNOWN: [&str; 3] = [
        "wordpress_logged_in_*",
        "woocommerce_*",
        "wp_woocommerce_session_*",
    ];
    let rule = LaneRule::new;
    vec![
        LaneRule {
            uri: owned(&["*?*wc-api=*", "*/wc-api/*"]),
            ..rule(Lane::First)
        },
        LaneRule {
            uri: owned(&["*/wp-cron.php", "*/xmlrpc.php"]),
            ..rule(Lane::Background)
        },
        // A maker of telephones.
        LaneRule {
            agent: owned(&["*cubot*"]),
            ..rule(Lane::People)
        },
        LaneRule {
            agent: owned(&[
                "",
                "*bot*",
                "*crawl*",
                "*spider*",
                "*slurp*",
                "*gpt*",
                "*claude*",
                "*scrapy*",
                "*headless*",
                "*facebookexternalhit*",
                "*python*",
                "*curl/*",
                "*wget*",
                "*go-http-client*",
                "*libwww*",
                "*java/*",
                "*archiver*",
            ]),
            ..rule(Lane::Bots)
        },
        LaneRule {
            uri: owned(&[
                "*/checkout",
                "*/checkout/*",
                "*/cart",
                "*/cart/*",
                "*?*wc-ajax=*",
                "*/wp-json/wc/store/*",
                "*?*rest_route=/wc/store*",
            ]),
            ..rule(Lane::First)
        },
        LaneRule {
            uri: owned(&["*/wp-login.php"]),
            method: owned(&["POST"]),
            ..rule(Lane::First)
        },
        LaneRule {
            uri: owned(&["*/wp-admin/admin-ajax.php", "*/wp-json/*", "*?*rest_route=*"]),
            no_cookie: owned(&KNOWN),
            ..rule(Lane::Background)
        },
    ]
}

impl Parse for LaneRules {
    fn parse(value: &Plain<'_>) -> Result<LaneRules, Kind> {
        match value {
            Plain::Text("off") => Ok(LaneRules(Vec::new())),
            Plain::Text(WORDPRESS) => Ok(LaneRules(wordpress_lanes())),
            Plain::List(items) if !items.is_empty() => {
                let mut rules = Vec::new();
                for item in items {
                    match item {
                        Plain::Text(WORDPRESS) => rules.extend(wordpress_lanes()),
                        Plain::Table(entries) => rules.push(rule(entries)?),
                        other => {
                            return Err(other.is_not(
                                "a rule; write { lane = \"bots\", agent = \"*bot*\" }, or \"wordpress\"",
                            ));
                        }
                    }
                }
                Ok(LaneRules(rules))
            }
            other => Err(other.is_not(EXPECTED)),
        }
    }
}

fn rule(entries: &[(&str, Plain<'_>)]) -> Result<LaneRule, Kind> {
    let lane = entries.iter().find(|(key, _)| *key == "lane");
    let lane = match lane {
        Some((_, Plain::Text(name))) => Lane::from_name(name.as_bytes()),
        _ => None,
    };
    let lanes = "\"first\", \"people\", \"background\" or \"bots\"";
    let Some(lane) = lane else {
        let written = entries.iter().find(|(key, _)| *key == "lane");
        return Err(match written {
            Some((_, value)) => value.is_not(&format!("a lane: {lanes}")),
            None => Kind::rule(
                "has a rule without a lane",
                format!("write lane = {lanes} in each rule"),
            ),
        });
    };
    let mut rule = LaneRule::new(lane);
    for (key, value) in entries {
        let patterns = match *key {
            "lane" => continue,
            "uri" => &mut rule.uri,
            "method" => &mut rule.method,
            "cookie" => &mut rule.cookie,
            "no_cookie" => &mut rule.no_cookie,
            "agent" => &mut rule.agent,
            other => {
                return Err(Kind::rule(
                    format!("has a rule with the unknown key {}", quoted(other)),
                    "a rule has lane, uri, method, cookie, no_cookie and agent",
                ));
            }
        };
        *patterns = texts(key, value)?;
        if *key == "uri"
            && let Some(wrong) = rule.uri.iter().find(|uri| !uri.starts_with(['/', '*']))
        {
            return Err(Kind::rule(
                format!(
                    "has a rule whose uri {} can't match: a URI starts with /",
                    quoted(wrong)
                ),
                format!("write {}", quoted(&format!("*{wrong}"))),
            ));
        }
    }
    Ok(rule)
}

fn texts(key: &str, value: &Plain<'_>) -> Result<Vec<String>, Kind> {
    let expected = format!("a pattern for {key}; write \"*text*\", or an array of patterns");
    match value {
        Plain::Text(text) => Ok(vec![(*text).to_owned()]),
        Plain::List(items) if !items.is_empty() => {
            let text = |item: &Plain<'_>| match item {
                Plain::Text(text) => Ok((*text).to_owned()),
                other => Err(other.is_not(&expected)),
            };
            items.iter().map(text).collect()
        }
        other => Err(other.is_not(&expected)),
    }
}

impl Parse for LaneReserve {
    fn parse(value: &Plain<'_>) -> Result<LaneReserve, Kind> {
        match value {
            Plain::Text("auto") => Ok(LaneReserve(None)),
            Plain::Whole(number) => Ok(LaneReserve(Some(*number))),
            other => Err(other.is_not("a number of workers, such as 2, or \"auto\"")),
        }
    }
}
