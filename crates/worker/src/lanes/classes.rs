//! Which lane a request belongs to, by its parameters.

use super::Lane;
use fastcgi::Params;
use forkyard_config::{LaneRule, Lanes};
use wildmatch::WildMatchPattern;

/// A web server names the request's lane in this parameter.
pub(crate) const PARAM: &[u8] = b"LANE";

/// Only the star is special: URIs have question marks.
type Pattern = WildMatchPattern<'*', '\0'>;

/// The rules of a pool.
#[derive(Debug)]
pub(crate) struct Classes {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    lane: Lane,
    uri: Vec<Uri>,
    method: Vec<Pattern>,
    cookie: Vec<Pattern>,
    no_cookie: Vec<Pattern>,
    agent: Vec<Pattern>,
}

/// A pattern for the path, or for the path with its query.
#[derive(Debug)]
struct Uri {
    pattern: Pattern,
    has_query: bool,
}

/// The parameters that rules look at, as text.
struct Facts<'p> {
    target: String,
    path_length: usize,
    method: String,
    cookies: Vec<&'p str>,
    agent: String,
}

impl Classes {
    pub(crate) fn new(lanes: &Lanes) -> Classes {
        Classes {
            rules: lanes.rules.iter().map(Rule::new).collect(),
        }
    }

    /// Returns the lane of a request. The web server's parameter overrides the rules.
    pub(crate) fn lane(&self, params: &Params) -> Lane {
        let told = params.get(PARAM).and_then(Lane::from_name);
        told.unwrap_or_else(|| self.by_rules(params))
    }

    fn by_rules(&self, params: &Params) -> Lane {
        let text = |name: &[u8]| String::from_utf8_lossy(params.get(name).unwrap_or_default());
        let target = text(b"REQUEST_URI").into_owned();
        let cookies = text(b"HTTP_COOKIE");
        let facts = Facts {
            path_length: target.find('?').unwrap_or(target.len()),
            target,
            method: text(b"REQUEST_METHOD").into_owned(),
            cookies: cookies.split(';').map(name_of).collect(),
            agent: text(b"HTTP_USER_AGENT").into_owned(),
        };
        let rule = self.rules.iter().find(|rule| rule.fits(&facts));
        rule.map_or(Lane::People, |rule| rule.lane)
    }
}

/// Returns the name of one cookie.
fn name_of(cookie: &str) -> &str {
    cookie.split('=').next().unwrap_or_default().trim()
}

impl Rule {
    fn new(rule: &LaneRule) -> Rule {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        let uri = |text: &String| Uri {
            pattern: Pattern::new(text),
            has_query: text.contains('?'),
        };
        Rule {
            lane: rule.lane,
            uri: rule.uri.iter().map(uri).collect(),
            method: patterns(&rule.method),
            cookie: patterns(&rule.cookie),
            no_cookie: patterns(&rule.no_cookie),
            agent: (rule.agent.iter())
                .map(|text| Pattern::new_case_insensitive(text))
                .collect(),
        }
    }

    fn fits(&self, facts: &Facts<'_>) -> bool {
        let path = &facts.target[..facts.path_length];
        let fits_uri = |uri: &Uri| {
            uri.pattern
                .matches(if uri.has_query { &facts.target } else { path })
        };
        let has_cookie = |pattern: &Pattern| facts.cookies.iter().any(|name| pattern.matches(name));
        let fits = |patterns: &[Pattern], text: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
        };
        (self.uri.is_empty() || self.uri.iter().any(fits_uri))
            && fits(&self.method, &facts.method)
            && fits(&self.agent, &facts.agent)
            && (self.cookie.is_empty() || self.cookie.iter().any(has_cookie))
            && !self.no_cookie.iter().any(has_cookie)
    }
}

#[cfg(test)]
#[path = "tests/classes.rs"]
mod tests;
