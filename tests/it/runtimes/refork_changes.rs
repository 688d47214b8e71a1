//! An upgrade and a reload while a pool's preloader is one that was made from a worker.

use super::refork::{PYTHON, RUBY, STATIC, Site, assert_renewed, under_load};

use crate::support::prelude::*;

fn order(site: &Site, order: &str) -> String {
    let output = site.daemon.run(&[order]);
    let text = text_of(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{text}");
    text
}

/// Makes a preloader from a worker, then has everything replaced by an order while clients ask. Afterwards nothing of before is
/// there, the application has begun anew, and preloaders are made from workers again.
fn assert_replaced(runtime: &str, source: &str, by: &str, said: &str) {
    let site = Site::start(runtime, source, STATIC, "refork_after = [5, 0]\n");
    assert_renewed(&site);
    let (preloader, before) = (site.preloader(), site.daemon.wait_for_workers("www", 3));
    let made = || site.daemon.log().matches("made from a worker").count();
    let made_before = made();
    let mark = match runtime {
        "rack" => "\n$told << \"new\"\n",
        _ => "\ntold.append(\"new\")\n",
    };
    let name = if runtime == "rack" { "config.ru" } else { "wsgi.py" };
    // The hooks of new code begin with a mark.
    let (head, tail) = source.split_at(source.find("\n\n").or(source.find("Forkyard")).expect("a place"));
    fs::write(site.root.path().join(name), format!("{head}{mark}{tail}")).expect("write");
    let answered = under_load(&site, || {
        let text = order(&site, by);
        assert!(text.contains(said), "{text}\n{}", site.daemon.log());
        wait_until("the old processes to leave", || {
            let old = before.iter().chain([&preloader]);
            old.into_iter().all(|pid| !process::runs(*pid))
        });
        wait_until("a preloader that is made from a new worker", || {
            made() > made_before
        });
        wait_until("workers of it", || {
            site.ask().hooks.iter().any(|hook| hook == "promoted")
        });
    });
    assert!(answered > 20, "{answered}");
    wait_until("the last of them to be a worker of it", || {
        let told = site.ask();
        assert_eq!(told.hooks.first().map(String::as_str), Some("new"), "{told:?}");
        let promoted = told.hooks.iter().filter(|hook| *hook == "promoted").count();
        promoted == 1
    });
    assert_ne!(site.preloader(), preloader);
    site.daemon.wait_for_workers("www", 3);
    let log = site.daemon.log();
    assert_lacks(&log, "WARNING");
    assert_lacks(&log, "ERROR");
}

tests! {
    fn an_upgrade_in_python() => assert_replaced("wsgi", PYTHON, "upgrade", "has taken over");
    fn an_upgrade_in_ruby() => assert_replaced("rack", RUBY, "upgrade", "has taken over");
    fn a_reload_in_python() => assert_replaced("wsgi", PYTHON, "reload", "replaced www: ");
    fn a_reload_in_ruby() => assert_replaced("rack", RUBY, "reload", "replaced www: ");
}
