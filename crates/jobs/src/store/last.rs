//! The last job of each key, tenant or kind.

use super::Work;
use super::operation::{By, Filter};
use super::query::{COLUMNS, MOST_LISTED, view};
use super::sql::Result;
use forkyard_protocol::jobs::JobView;

impl By {
    pub fn of_name(name: &str) -> Option<By> {
        [By::Key, By::Tenant, By::Kind]
            .into_iter()
            .find(|by| by.column() == name)
    }

    fn column(self) -> &'static str {
        match self {
            By::Key => "key",
            By::Tenant => "tenant",
            By::Kind => "kind",
        }
    }

    fn of(self, job: &JobView) -> &str {
        match self {
            By::Key => job.key.as_deref().unwrap_or_default(),
            By::Tenant => &job.tenant,
            By::Kind => &job.kind,
        }
    }
}

impl Work<'_> {
    pub(super) fn last(&mut self, by: By, filter: &Filter, like: Option<&str>) -> Result<Vec<JobView>> {
        let (condition, values) = filter.condition();
        let column = by.column();
        let select = format!(
            "SELECT {COLUMNS} FROM job WHERE id IN (SELECT max(id) FROM job WHERE {condition} AND {column} IS NOT NULL \
             AND {column} <> '' GROUP BY {column}) ORDER BY {column}"
        );
        let mut jobs = self.database.all(&select, &values, view)?;
        jobs.retain(|job| like.is_none_or(|like| is_like(by.of(job), like)));
        jobs.truncate(filter.limit.min(MOST_LISTED) as usize);
        Ok(jobs)
    }
}

fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut of) = (0, 0);
    // The position of the last `*`, and the length that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(of) {
            Some('*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == text[at] => (at, of) = (at + 1, of + 1),
            _ => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    (at, of) = (taken + 1, place + 1);
                }
                None => return false,
            },
        }
    }
    pattern[of..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn a_pattern_means_any_text_or_any_character() {
        for (text, pattern, expected) in [
            ("service/7", "service/7", true),
            ("service/7", "service/?", true),
            ("service/77", "service/?", false),
            ("service/77", "service/*", true),
            ("service/77", "*", true),
            ("", "*", true),
            ("", "?", false),
            ("aXbXc", "a*X*c", true),
            ("aXbXd", "a*X*c", false),
            ("über", "?ber", true),
            ("service/7", "ervice/7", false),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
    }
}
