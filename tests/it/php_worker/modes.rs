//! The mode in effect if it differs from the setting: in the status, its JSON, the metrics and `forkyard_worker()`.

use super::{ONE, mode_pool, ordinary_pool, status, status_of};
use crate::support::prelude::*;

const SCRIPT: &str = r#"<?php
$boot = forkyard_worker();
while (forkyard_handle_request(function () use ($boot) {
    echo json_encode([$boot, forkyard_worker()]);
}));
"#;

struct Case {
    name: &'static str,
    settings: &'static str,
    application: &'static str,
    mode: &'static str,
    isolation: Option<&'static str>,
    because: Option<&'static str>,
    text: &'static str,
}

const DENIES: &str = "confine.deny_system_calls = true\n";
const SNAPSHOT: &str = "worker_mode = \"snapshot\"\n";
const CASES: [Case; 4] = [
    Case {
        name: "loop",
        settings: "",
        application: "worker_mode = \"loop\"\n",
        mode: "loop",
        isolation: None,
        because: None,
        text: "boots once (loop) in ",
    },
    Case {
        name: "looping",
        settings: DENIES,
        application: "worker_mode = \"loop\"\n",
        mode: "loop",
        isolation: None,
        because: None,
        text: "boots once (loop) in ",
    },
    Case {
        name: "snap",
        settings: "",
        application: SNAPSHOT,
        mode: "snapshot",
        isolation: Some("rewind"),
        because: None,
        text: "boots once (snapshot, rewind) in ",
    },
    Case {
        name: "auto",
        settings: DENIES,
        application: SNAPSHOT,
        mode: "ordinary",
        isolation: None,
        because: Some("can't put a worker back to its snapshot (userfaultfd: Operation not permitted"),
        text: "boots in each request (ordinary), not once: this kernel can't put a worker back",
    },
];

#[test]
fn the_mode_that_runs_is_told_with_the_reason_if_it_is_another() {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("worker.php"), SCRIPT).expect("write");
        let mut text = with_control(dir);
        for case in &CASES {
            let settings = format!("{ONE}{}", case.settings);
            text += &mode_pool(dir, case.name, "worker.php", &settings, case.application);
        }
        text + &ordinary_pool(dir, "www", ONE, "")
    });
    let metrics_of = || status(&daemon, &["--metrics"]);
    for case in &CASES {
        let name = case.name;
        let ask = || -> Value {
            let answer = daemon.ask(name, &Params::get(&daemon.dir, "index.php", ""));
            parsed(&answer.body())
        };
        ask();
        let said = ask();
        let (boot, handler) = (&said[0], &said[1]);
        let text_of = |value: &Value| value.as_str().map(str::to_owned);
        for facts in [boot, handler] {
            assert_eq!(facts["mode"], case.mode, "{name}: {facts}");
            let because = text_of(&facts["because"]);
            assert_eq!(because.is_some(), case.because.is_some(), "{name}: {facts}");
            assert!(
                because
                    .unwrap_or_default()
                    .contains(case.because.unwrap_or_default()),
                "{name}: {facts}"
            );
        }
        assert_eq!(
            (&boot["is_booting"], boot["booted"].is_null()),
            (&true.into(), true),
            "{name}: {boot}"
        );
        assert_eq!(
            (&handler["is_booting"], handler["booted"].is_f64()),
            (&false.into(), true),
            "{name}: {handler}"
        );
        assert_eq!(
            text_of(&handler["isolation"]).as_deref(),
            case.isolation,
            "{name}: {handler}"
        );

        let pool = status_of(&daemon, name);
        let boot = &pool["generations"][0]["boot"];
        assert_eq!(boot["mode"], case.mode, "{boot:#}");
        assert_eq!(text_of(&boot["isolation"]).as_deref(), case.isolation, "{boot:#}");
        let because = text_of(&boot["because"]);
        assert_eq!(because.is_some(), case.because.is_some(), "{boot:#}");
        assert!(
            because
                .unwrap_or_default()
                .contains(case.because.unwrap_or_default()),
            "{boot:#}"
        );
        assert_eq!(boot["took_ms"].is_u64(), case.because.is_none(), "{boot:#}");
        assert_eq!(
            boot["rewound"].is_object(),
            case.isolation == Some("rewind"),
            "{boot:#}"
        );
        let text = status(&daemon, &[name]);
        assert!(text.contains(case.text), "{name}: {text}");
        let labels = match case.isolation {
            Some(isolation) => format!(
                "{{pool=\"{name}\",mode=\"{}\",isolation=\"{isolation}\"}} 1",
                case.mode
            ),
            None => format!("{{pool=\"{name}\",mode=\"{}\"}} 1", case.mode),
        };
        assert_contains(&metrics_of(), &format!("forkyard_pool_boot_info{labels}"));
    }
    let line = daemon.wait_for("each request boots the application: this kernel can't put a worker back");
    assert_contains(&line, "[pool auto]");
    assert!(status_of(&daemon, "www")["generations"][0]["boot"].is_null());
}
