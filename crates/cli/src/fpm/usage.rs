pub(super) fn text(program: &str, prefix: &str) -> String {
    include_str!("usage.txt")
        .replace("{program}", program)
        .replace("{prefix}", prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line is php-fpm's.
    #[test]
    fn what_an_option_does_is_no_wider_than_a_terminal() {
        let text = text("php-fpm", "/usr");
        for line in text.lines().skip(1) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
