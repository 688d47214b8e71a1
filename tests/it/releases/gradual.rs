//! A new release gets a part of the requests first, and is taken back if it is worse.

use super::Shop;
use super::visitors::{DYNAMIC, ONDEMAND, STATIC, Visitors, application};
use crate::support::prelude::*;

#[test]
fn a_good_release_gets_more_and_more_and_nothing_is_lost() {
    let rows = [
        ("zygote", STATIC, false),
        ("zygote", DYNAMIC, true),
        ("zygote", ONDEMAND, false),
        ("php", STATIC, true),
        ("wsgi", DYNAMIC, false),
        ("rack", STATIC, true),
        ("asgi", STATIC, false),
        ("asgi", ONDEMAND, true),
        ("node", STATIC, false),
        ("cgi", STATIC, false),
    ];
    for (name, manager, is_kept) in rows {
        let steps = "gradual = [10, 50]\nstep_time = \"2s\"\n";
        let shop = Shop::start(application(name), &format!("{manager}{steps}"), false);
        shop.assert_serves("1", &[]);
        let visitors = Visitors::start(&shop, &["/"], 3, is_kept);
        let (code, text) = shop.deploy(&["--json", &shop.release("2"), "--wait"]);
        assert_eq!(code, 0, "{name} {manager}: {text}\n{}", shop.daemon.log());
        let log = shop.daemon.log();
        for percent in [10, 50] {
            assert_contains(&log, &format!("the new release gets {percent} % of the requests"));
        }
        shop.assert_serves("2", &["1"]);
        let (old, new) = (visitors.seen("200 1"), visitors.seen("200 2"));
        let seen = visitors.end();
        let whole = ["200 OK 1 1 1", "200 OK 2 2 2", "200 1 1 1", "200 2 2 2"];
        let is_whole = |(text, _): &(&String, &u64)| whole.contains(&text.trim());
        let others: Vec<_> = seen.iter().filter(|row| !is_whole(row)).collect();
        assert!(others.is_empty(), "{name} {manager} kept {is_kept}: {seen:?}");
        println!(
            "{name} {is_kept} {}: {old} {new}",
            manager.lines().next().unwrap_or_default()
        );
    }
}

#[test]
fn a_release_without_its_scripts_is_taken_back() {
    for application in ["zygote", "php", "cgi"].map(application) {
        let (name, script) = (application.name, application.files[0].0);
        let steps = "gradual = [20, 50]\nstep_time = \"10s\"\n";
        let shop = Shop::start(application, &format!("{STATIC}{steps}"), false);
        fs::remove_file(shop.daemon.dir.join("releases/2").join(script)).expect("a script");
        shop.assert_serves("1", &[]);
        let visitors = Visitors::start(&shop, &["/"], 3, false);
        let text = exited(70, shop.deploy(&[&shop.release("2")]));
        assert_contains(
            &text,
            " requests named a script that is missing or refused, with the release before 0 of ",
        );
        let missing = visitors.seen("404");
        let seen = visitors.end();
        assert!(
            missing > 0 && seen.keys().all(|text| !text.contains("lost")),
            "{name}: {seen:?}"
        );
        shop.assert_serves("1", &[]);
    }
}

#[test]
fn a_release_whose_routes_fail_is_taken_back() {
    let failing =
        "<?php usleep(1000); if ($_SERVER['REQUEST_URI'] === '/4') { http_response_code(500); } echo 'bad';";
    for is_kept in [false, true] {
        let steps = "gradual = [10, 50]\nstep_time = \"10s\"\n";
        let shop = Shop::start(application("zygote"), &format!("{STATIC}{steps}"), false);
        write_file(shop.daemon.dir.join("releases/2/index.php"), failing);
        shop.assert_serves("1", &[]);
        let visitors = Visitors::start(&shop, &["/0", "/1", "/2", "/3", "/4"], 2, is_kept);
        let output = shop.daemon.run(&["deploy", "shop", &shop.release("2"), "--json"]);
        assert_eq!(output.status.code(), Some(70), "{}", daemon_told(&output));
        let result = parsed(&text_of(&output.stdout));
        assert_eq!(result["outcome"], "rolled-back", "{result}");
        let why = result["why"].as_str().expect("a reason").to_owned();
        assert_contains(&why, " failed in ");
        let took = result["took_ms"].as_u64().expect("a time");
        assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
        shop.assert_serves("1", &[]);
        let failed = visitors.seen("500");
        assert!(
            failed > 0 && (failed <= 30 || took <= 15_000),
            "{failed} failed in {took} ms"
        );
        let seen = visitors.end();
        assert!(seen.keys().all(|text| !text.contains("lost")), "{seen:?}");
        let events = shop.daemon.shown(&["events"]);
        assert_contains(&events, &format!("was taken back: {why}"));
    }
}

#[test]
fn a_release_that_always_fails_is_taken_back_though_the_load_is_short() {
    for is_kept in [false, true] {
        let steps = "gradual = [50]\nstep_time = \"4s\"\n";
        let shop = Shop::start(application("zygote"), &format!("{STATIC}{steps}"), false);
        write_file(
            shop.daemon.dir.join("releases/2/index.php"),
            "<?php usleep(1000); http_response_code(500); echo 'bad';",
        );
        shop.assert_serves("1", &[]);
        let mut command = forkyard(
            &["deploy", "shop", &shop.release("2"), "--json"],
            &shop.daemon.dir,
        );
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let deployment = command.spawn().expect("a deployment");
        let visitors = Visitors::start(&shop, &["/"], 2, is_kept);
        wait_until("failures for three seconds", || {
            visitors.seen("500") >= 200 || shop.daemon.log().contains("was taken back")
        });
        visitors.end();
        let output = deployment.wait_with_output().expect("a command");
        assert_eq!(output.status.code(), Some(70), "{}", daemon_told(&output));
        let result = parsed(&text_of(&output.stdout));
        let why = result["why"].as_str().expect("a reason");
        assert_contains(why, " failed in ");
        let took = result["took_ms"].as_u64().expect("a time");
        println!("kept {is_kept}: {why} after {took} ms");
        shop.assert_serves("1", &[]);
    }
}

#[test]
fn a_deployment_under_way_is_taken_back_or_replaced() {
    let steps = "gradual = [50]\nstep_time = \"600s\"\n";
    let shop = Shop::start(application("wsgi"), &format!("{STATIC}{steps}"), false);
    shop.assert_serves("1", &[]);
    let begin = |release: &str| {
        let mut command = forkyard(&["deploy", "shop", &shop.release(release)], &shop.daemon.dir);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a deployment")
    };
    let ended = |child: Child| {
        let output = child.wait_with_output().expect("a command");
        (output.status.code(), daemon_told(&output))
    };
    let first = begin("2");
    shop.daemon.wait_for("the new release gets 50 % of the requests");
    let shown = shop.daemon.shown(&["releases"]);
    assert_contains(&shown, "releases/2 gets 50 % of the requests");
    wait_until("an answer of each release", || {
        let answers: Vec<String> = (0..10).map(|_| shop.answer_at("current")).collect();
        ["1 1 1", "2 2 2"]
            .iter()
            .all(|one| answers.iter().any(|answer| answer == one))
    });
    let [one, two] = ["1", "2"].map(|release| shop.release(release));
    let status = || parsed(&shop.daemon.shown(&["status", "shop", "--json"]));
    let requests = |of: &Value, side: &str| of[side]["requests"].as_u64().expect("a number");
    wait_until("requests of both releases", || {
        let releases = status()["pools"][0]["releases"].take();
        let under_way = &releases["under_way"];
        assert_eq!(
            (&releases["release"], &under_way["release"], &under_way["percent"]),
            (
                &Value::from(one.clone()),
                &Value::from(two.clone()),
                &Value::from(50)
            )
        );
        assert_eq!(under_way["new"]["failures"], 0);
        requests(under_way, "old") > 0 && requests(under_way, "new") > 0
    });
    let shown = shop.daemon.shown(&["status", "shop"]);
    assert_contains(&shown, &format!("  release {one} ("));
    assert_contains(&shown, &format!("  {two} gets 50 % of the requests, since "));
    let metrics = || shop.daemon.shown(&["status", "--metrics"]);
    let shown = metrics();
    assert_contains(
        &shown,
        &format!("\nforkyard_pool_release_info{{pool=\"shop\",release=\"{one}\"}} 1\n"),
    );
    assert_contains(&shown, "\nforkyard_pool_deployment_share{pool=\"shop\"} 0.5\n");
    assert_contains(
        &shown,
        "\nforkyard_pool_deployments_total{pool=\"shop\",outcome=\"rolled-back\"} 0\n",
    );
    exited(Some(0), shop.daemon.said(&["rollback", "shop"]));
    let text = exited(Some(70), ended(first));
    assert_contains(&text, "was taken back: an operator asked for it");
    let releases = status()["pools"][0]["releases"].take();
    assert_eq!(releases["under_way"], Value::Null);
    assert_has(
        &releases["last"],
        json!({"outcome": "rolled-back", "why": "an operator asked for it"}),
    );
    assert_contains(
        &shop.daemon.shown(&["status", "shop"]),
        &format!(" ago: {two} was taken back: an operator asked for it; {one} goes on\n"),
    );
    let shown = metrics();
    assert_lacks(&shown, "\nforkyard_pool_deployment_share{");
    assert_contains(
        &shown,
        "\nforkyard_pool_deployments_total{pool=\"shop\",outcome=\"rolled-back\"} 1\n",
    );
    shop.assert_serves("1", &[]);
    assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
    assert_eq!(shop.link("current.next"), None);
    // A reload goes on with the deployment; one of everything takes it back, and so does a restart.
    for end in [&["reload", "--all"][..], &["restart", "shop"]] {
        let under_way = begin("2");
        let begun = || shop.daemon.shown(&["releases"]);
        wait_until("a deployment", || begun().contains("releases/2 gets 50 %"));
        exited(Some(0), shop.daemon.said(&["reload"]));
        assert_contains(&begun(), "releases/2 gets 50 %");
        exited(Some(0), shop.daemon.said(end));
        let (code, text) = ended(under_way);
        assert_eq!(code, Some(70), "{end:?}: {text}");
        assert_contains(
            &text,
            "a restart or another configuration of the pool took its place",
        );
        wait_until("the release before", || shop.answer_at("current") == "1 1 1");
        assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
    }
}

#[test]
fn the_next_deployment_does_not_wait_for_requests_of_releases_that_leave() {
    let slow = "<?php if ($_SERVER['QUERY_STRING'] === 'hold') { touch('DIR/held');
        while (!file_exists('DIR/go')) { usleep(1000); } }
        include 'part.php'; echo 'RELEASE ', part(), ' ', basename($_SERVER['DOCUMENT_ROOT']);";
    for name in ["php", "zygote"] {
        let shop = Shop::start(application(name), &format!("{STATIC}gradual = []\n"), false);
        let dir = shop.daemon.dir.display().to_string();
        for release in ["1", "2"] {
            let text = slow.replace("DIR", &dir).replace("RELEASE", release);
            write_file(
                shop.daemon.dir.join("releases").join(release).join("index.php"),
                text,
            );
        }
        shop.assert_serves("1", &[]);
        let hold = |shop: &Shop| {
            let params = Params::get(&shop.daemon.dir.join("current"), "index.php", "hold");
            let mut client = shop.daemon.client("shop");
            client.send(&params, b"").expect("send");
            wait_until("the request", || shop.daemon.dir.join("held").exists());
            fs::remove_file(shop.daemon.dir.join("held")).expect("the mark");
            client
        };
        let mut first = hold(&shop);
        let (code, said) = shop.deploy(&[&shop.release("2")]);
        assert_eq!(code, 0, "{name}: {said}");
        let mut second = hold(&shop);
        let (code, said) = shop.daemon.said(&["rollback", "shop"]);
        assert_eq!(code, Some(0), "{name}: {said}");
        assert!(!said.contains("waits"), "{name}: {said}");
        shop.assert_serves("1", &["2"]);
        let (code, said) = shop.deploy(&[&shop.release("3")]);
        assert_eq!(code, 0, "{name}: {said}");
        shop.assert_serves("3", &["1", "2"]);
        write_file(shop.daemon.dir.join("go"), "");
        for (client, release) in [(&mut first, "1"), (&mut second, "2")] {
            let answer = client.answer().expect("an answer");
            assert_eq!(answer.body(), format!("{release} {release} {release}"), "{name}");
        }
    }
}

#[test]
fn a_release_that_goes_away_during_its_trial_is_taken_back() {
    let steps = "gradual = [50]\nstep_time = \"1s\"\n";
    let shop = Shop::start(application("wsgi"), &format!("{STATIC}{steps}"), false);
    shop.assert_serves("1", &[]);
    let mut command = forkyard(&["deploy", "shop", &shop.release("2")], &shop.daemon.dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let under_way = command.spawn().expect("a deployment");
    shop.daemon.wait_for("the new release gets 50 % of the requests");
    fs::rename(shop.release("2"), shop.daemon.dir.join("away")).expect("rename");
    let output = under_way.wait_with_output().expect("a command");
    let text = daemon_told(&output);
    assert_eq!(output.status.code(), Some(70), "{text}");
    assert_contains(&text, "was taken back: its directory is gone");
    let links = ["current", "current.next"].map(|name| shop.link(name));
    assert_eq!(links, [Some("releases/1".to_owned()), None]);
    shop.assert_serves("1", &[]);
}

#[test]
fn a_release_that_is_too_slow_for_the_step_is_taken_back() {
    let steps = "gradual = [50]\nstep_time = \"4s\"\n";
    let shop = Shop::start(application("zygote"), &format!("{STATIC}{steps}"), false);
    for (release, micros) in [("1", 20_000), ("2", 400_000)] {
        write_file(
            shop.daemon.dir.join(format!("releases/{release}/index.php")),
            format!("<?php usleep({micros}); echo '{release} {release} {release}';"),
        );
    }
    shop.assert_serves("1", &[]);
    let visitors = Visitors::start(&shop, &["/"], 4, true);
    let (code, text) = shop.deploy(&["--json", &shop.release("2")]);
    visitors.end();
    assert_eq!(code, 70, "{text}\n{}", shop.daemon.log());
    assert_contains(&text, " takes ");
    println!("{text}");
    shop.assert_serves("1", &[]);
}

#[test]
fn a_release_whose_program_dies_is_taken_back() {
    let steps = "gradual = [50]\nstep_time = \"3s\"\n";
    let shop = Shop::start(application("node"), &format!("{STATIC}{steps}"), false);
    let start = shop.daemon.dir.join("releases/2/app.js");
    let text = read_file(&start);
    write_file(
        &start,
        format!("setTimeout(() => process.exit(3), 1500);\n{text}"),
    );
    shop.assert_serves("1", &[]);
    let visitors = Visitors::start(&shop, &["/"], 2, true);
    let (code, text) = shop.deploy(&["--json", &shop.release("2")]);
    visitors.end();
    assert_eq!(code, 70, "{text}\n{}", shop.daemon.log());
    assert_contains(&text, "\"outcome\": \"rolled-back\"");
    println!("{text}");
    shop.assert_serves("1", &[]);
}

#[test]
fn a_pool_that_is_removed_ends_its_deployment() {
    let steps = "gradual = [50]\nstep_time = \"600s\"\n";
    let shop = Shop::start(application("wsgi"), &format!("{STATIC}{steps}"), false);
    shop.assert_serves("1", &[]);
    let mut command = forkyard(&["deploy", "shop", &shop.release("2")], &shop.daemon.dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let under_way = command.spawn().expect("a deployment");
    shop.daemon.wait_for("the new release gets 50 % of the requests");
    let (code, text) = shop.daemon.said(&["pool", "remove", "shop"]);
    assert_eq!(code, Some(0), "{text}");
    let output = under_way.wait_with_output().expect("a command");
    let text = daemon_told(&output);
    assert_eq!(output.status.code(), Some(70), "{text}");
    assert_contains(&text, "was taken back: the pool was removed");
    assert_eq!(shop.link("current.next"), None);
}

fn daemon_told(output: &std::process::Output) -> String {
    text_of(&[&output.stdout[..], &output.stderr].concat())
}
