use super::*;

#[test]
fn rules_of_releases() {
    cases(
        pool,
        &ROOT,
        r#"
        release = "current"
        ! 7:1: error: [pool www] release: "current" is not an absolute path; start it with /
        release = "/"
        ! 7:1: error: [pool www] release: it is no path of a link; name a link, such as /srv/shop/current
        release = "/srv/current"
        chroot = "/srv"
        ! 7:1: error: [pool www] release: a pool with chroot has no release; leave it out
        ! 8:1: error: [pool www] chroot: "/srv" is not an existing directory; make it, or give another path
        release = "/srv/current"
        gradual = [10, 5]
        ! 8:1: error: [pool www] gradual: 5 is not a percentage after 10; give whole numbers from 1 to 99, each more than the one before, or []
        release = "/srv/current/"
        gradual = [0, 10]
        ! 8:1: error: [pool www] gradual: 0 is not a percentage from 1 to 99; give whole numbers from 1 to 99, each more than the one before, or []
        gradual = [10]
        ! 7:1: warning: [pool www] gradual: it has no effect without release; write release = "/srv/shop/current", or leave it out
        release_shared = ["/srv/shared"]
        ! 7:1: warning: [pool www] release_shared: it has no effect without release; write release = "/srv/shop/current", or leave it out
        release = "/srv/current"
        release_shared = ["/srv/shared", "shared"]
        ! 8:1: error: [pool www] release_shared: "shared" is not an absolute path; start it with /
        release = "/srv/current"
        release_shared = ["/"]
        ! 8:1: error: [pool www] release_shared: every script is below it; name a directory, such as /srv/shop/shared
        "#,
    );
}

#[test]
fn a_missing_link_is_named_beside_what_is_missing_below_it() {
    let text = r#"
        [pool.www]
        listen = "/run/www.sock"
        user = "www-data"
        pm = "ondemand"
        max_children = 1
        release = "/srv/gone/"
        [pool.www.application]
        runtime = "wsgi"
        root = "/srv/gone"
    "#;
    let text = text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
    let found = found(&text, &ROOT);
    let expected = "release: /srv/gone leads to no directory; make it before the daemon starts: ln -s releases/1 /srv/gone";
    assert!(found.iter().any(|line| line.contains(expected)), "{found:?}");
}
