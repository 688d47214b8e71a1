use super::*;

const SKIP: &str = "[global]\non_error = \"skip\"\n";

fn one(name: &str, more: &str) -> String {
    format!(
        "[pool.{name}]\nlisten = \"/run/{name}.sock\"\nuser = \"www-data\"\npm = \"static\"\nmax_children = 2\n{more}\n\
         [pool.{name}.application]\nruntime = \"php\"\nversion = \"8.2\"\n"
    )
}

fn sorted(text: &str, world: &Machine) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let config = match parsed(text, world) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors} in\n{text}"),
    };
    let reasons = |one: &Skipped| one.reasons.iter().map(|it| it.replace("f.toml:", "")).collect();
    (
        config.pools.iter().map(|pool| pool.name.clone()).collect(),
        config
            .skipped
            .iter()
            .map(|one| (one.name(), reasons(one)))
            .collect(),
    )
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn the_rule_is_written_for_all() {
    let text = format!("[global]\non_error = \"ignore\"\n{}", one("a", ""));
    assert_eq!(
        found(&text, &ROOT),
        [
            "2:1: error: global.on_error: \"ignore\" is not a rule for pools with errors; write \"fail\" or \"skip\""
        ]
    );
    let bad = one("a", "") + &one("b", "max_childern = 1");
    for rule in ["", "[global]\non_error = \"fail\"\n"] {
        assert!(parsed(&format!("{rule}{bad}"), &ROOT).is_err());
    }
}

#[test]
fn a_pool_with_errors_is_left_out_with_all_of_them() {
    let text = format!(
        "{SKIP}{}{}{}",
        one("a", ""),
        one("b", "user_ = 1\nmax_requests = \"x\""),
        one("c", "")
    );
    assert_eq!(
        sorted(&text, &ROOT),
        (
            words(&["a", "c"]),
            vec![(
                "[pool b]".to_owned(),
                words(&[
                    "17:1: user_: unknown key; did you mean user?",
                    "18:1: max_requests: \"x\" is not a whole number; write digits without quotes, for example 10",
                ])
            )]
        )
    );
    // Findings keep their severity, so that a check can count them.
    let loaded = parsed(&text, &ROOT).expect("usable");
    assert_eq!(loaded.warnings.len(), 2);
    assert!(loaded.warnings.iter().all(|it| it.severity == Severity::Error));
}

#[test]
fn what_two_pools_make_together_belongs_to_both() {
    let same = one("b", "").replace("/run/b.sock", "/run/a.sock");
    let text = format!("{SKIP}{}{same}{}", one("a", ""), one("c", ""));
    let reason = "listen: pool a already listens on \"/run/a.sock\"; give each pool its own address";
    assert_eq!(
        sorted(&text, &ROOT),
        (
            words(&["c"]),
            vec![
                ("[pool b]".to_owned(), vec![format!("13:1: {reason}")]),
                ("[pool a]".to_owned(), vec![format!("13:1: [pool b] {reason}")]),
            ]
        )
    );
    let world = Machine {
        root: true,
        files: vec![("/etc/p/x.toml", "[pool.a]\nlisten = \"/run/x.sock\"\n")],
    };
    let text = format!(
        "{SKIP}include = [\"/etc/p/*.toml\"]\n{}{}",
        one("a", ""),
        one("c", "")
    );
    let (left, skipped) = sorted(&text, &world);
    assert_eq!((left, skipped[0].0.as_str()), (words(&["c"]), "[pool a]"));
}

#[test]
fn a_file_that_can_not_be_read_takes_its_own_pools_with_it() {
    let broken = "[pool.lost]\nlisten = /run/lost.sock\n";
    let world = Machine {
        root: true,
        files: vec![
            ("/etc/p/1.toml", broken),
            ("/etc/p/2.toml", "unreadable"),
            ("/etc/p/3.toml", "colour = 1\n[pool.d]\n"),
        ],
    };
    let text = format!("{SKIP}include = [\"/etc/p/*.toml\"]\n{}", one("a", ""));
    let (left, skipped) = sorted(&text, &world);
    let names: Vec<&str> = skipped.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left, words(&["a"]));
    assert_eq!(names, ["[pool lost]", "/etc/p/2.toml", "[pool d]"]);
    assert!(
        skipped[0].1[0].starts_with("/etc/p/1.toml:2:10: not valid TOML"),
        "{skipped:?}"
    );
    assert!(skipped[1].1[0].contains("can't be read"), "{skipped:?}");
}

#[test]
fn errors_of_no_single_pool_leave_nothing() {
    let good = one("a", "");
    for text in [
        format!("{SKIP}pidd = 1\n{good}"),
        format!("{SKIP}{good}[poool.b]\n"),
        format!("{SKIP}{good}x = [\n"),
        format!("{SKIP}control = \"/run/a.sock\"\n{good}"),
        format!("{SKIP}{}", one("a", "max_childern = 1")),
    ] {
        assert!(parsed(&text, &ROOT).is_err(), "{text}");
    }
}

#[test]
fn pools_that_run_go_on_as_they_were() {
    let files = |b: &'static str, c: &'static str| Machine {
        root: true,
        files: vec![("/etc/p/b.toml", b), ("/etc/p/c.toml", c)],
    };
    let (b, c): (&'static str, &'static str) = (one("b", "").leak(), (one("c", "") + &one("d", "")).leak());
    let text = format!("{SKIP}include = [\"/etc/p/*.toml\"]\n{}", one("a", ""));
    let before = parsed(&text, &files(b, c)).expect("valid").config;
    assert_eq!(before.pools.len(), 4);
    let wrong: &'static str = one("b", "max_childern = 1").leak();
    let mut now = parsed(&text, &files(wrong, "unreadable")).expect("usable").config;
    assert_eq!(now.pools.len(), 1);
    now.go_on_with(&before);
    let names: Vec<&str> = now.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert_eq!(now.pools[1..], before.pools[1..]);
    assert!(["b", "c", "d"].iter().all(|name| now.goes_on(name)) && !now.goes_on("a"));
    // Unchanged by repeated preparation and by a second reload with the same errors.
    let again = now.clone();
    now.go_on_with(&again);
    assert_eq!(now, again);
    let mut second = parsed(&text, &files(wrong, "unreadable")).expect("usable").config;
    second.go_on_with(&now);
    assert_eq!(second, now);
    let text = text.replace("*.toml", "b.toml");
    let mut less = parsed(&text, &files(wrong, c)).expect("usable").config;
    less.go_on_with(&now);
    let names: Vec<&str> = less.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}
