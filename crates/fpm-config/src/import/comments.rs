//! Chooses the comments of php-fpm's files to keep.

/// Phrases of php-fpm's sample, whose explanations don't apply here.
const MARKS: &[&str] = &[
    "Default Value",
    "Note: ",
    "Possible Values",
    "Valid syntaxes",
    "the variable $pool can be used",
    "pool name ('www' here)",
    "service PIDFile=",
];

/// Drops the sample's explanation at the start and keeps the rest.
pub(super) fn own(comments: &[String]) -> &[String] {
    let is_marked = |comment: &String| MARKS.iter().any(|mark| comment.contains(mark));
    let Some(last) = comments.iter().rposition(is_marked) else {
        return comments;
    };
    let rest = &comments[last + 1..];
    // The explanation continues in indented lines.
    let ends = rest.iter().position(|comment| !comment.starts_with("  "));
    &rest[ends.unwrap_or(rest.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_of_php_fpm_s_sample_stay_behind() {
        for (comments, expected) in [
            (&[][..], &[][..]),
            (&[" one is enough"], &[" one is enough"]),
            (
                &[
                    " Pid file",
                    " Note: the default prefix is /var",
                    " Default Value: none",
                ],
                &[],
            ),
            (
                &[
                    " Set permissions.",
                    " Default Values: Owner is set",
                    "                 is not set",
                    " nginx needs it",
                    "too",
                ],
                &[" nginx needs it", "too"],
            ),
            (
                &[
                    " Start a new pool named 'www'.",
                    " the variable $pool can be used in any directive",
                    " pool name ('www' here)",
                ],
                &[],
            ),
        ] {
            let comments: Vec<String> = comments.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(own(&comments), expected, "{comments:?}");
        }
    }
}
