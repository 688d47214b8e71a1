//! `examples/services-monitor`, with services of a test server.

use super::Jobs;
use crate::support::prelude::*;
use std::net::SocketAddr;

const SERVICES: usize = 30;

fn serve_maps() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut reader = BufReader::new(stream);
            let _ = reader.read_line(&mut line);
            let (status, text) = match line.split('/').nth(1) {
                Some("wms") => (
                    "200 OK",
                    r#"<WMS_Capabilities version="1.3.0"><Layer></Layer><Layer></Layer></WMS_Capabilities>"#,
                ),
                Some("wfs") => (
                    "200 OK",
                    r#"<WFS_Capabilities><FeatureType></FeatureType></WFS_Capabilities>"#,
                ),
                _ => ("404 Not Found", ""),
            };
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|count| count > 2) {
                head.clear();
            }
            let answer = format!(
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            );
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    address
}

fn configuration(dir: &Path, services: &str) -> String {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/services-monitor/.");
    let copied = Command::new("cp").args(["-r", example]).arg(dir).status();
    assert!(copied.expect("cp").success());
    fs::write(dir.join("services.txt"), services).expect("services");
    make_folder(&dir.join("store"));
    let text = read_file(dir.join("forkyard.toml"));
    let place = dir.display().to_string();
    let mut text = text
        .replace("/run/forkyard-monitor-jobs.sock", "/srv/monitor/jobs.sock")
        .replace("/run/forkyard-monitor", "/srv/monitor/monitor")
        .replace("/var/lib/forkyard-monitor", "/srv/monitor/store")
        .replace("max_children = 20", "max_children = 4")
        .replace("/srv/monitor", &place);
    if !is_root() {
        text = text.replace("user = \"www-data\"\n", "");
    }
    text
}

#[test]
fn services_are_checked_by_tasks_of_four_languages_and_again_by_a_pattern() {
    let address = serve_maps();
    let mut services = String::new();
    for number in 1..=SERVICES {
        let kind = if number % 2 == 1 { "wms" } else { "wfs" };
        let _ = writeln!(
            services,
            "service-{number} region-{} {} http://{address}/{kind}/{number}",
            number % 3,
            kind.to_uppercase()
        );
    }
    let _ = writeln!(services, "gone region-0 WMS http://{address}/gone");
    services.push_str("wrong region-0 WMTS nowhere\n");
    let daemon = Daemon::start(|dir| configuration(dir, &services));
    let jobs = Jobs { daemon };
    let run = |arguments: &[&str]| {
        let all: Vec<&str> = ["jobs"].iter().chain(arguments).copied().collect();
        let output = forkyard(&all, &jobs.dir()).output().expect("forkyard");
        let text = |bytes: &[u8]| text_of(bytes);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (_, kinds, _) = run(&["kinds"]);
    assert_contains(&kinds, "Checks a service: congruence (Python)");
    let (code, said, errors) = run(&["push", "checks", "all", "--wait"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert_contains(&said, "32 services");
    let last = || {
        let answer = jobs.ask(&json!({"command": "last", "by": "key", "kind": "service", "limit": 1000}));
        answer["jobs"].as_array().cloned().unwrap_or_default()
    };
    let all = until("all are checked", || {
        let last = last();
        (last.len() == SERVICES + 2 && last.iter().all(|job| job["state"] == "done")).then_some(last)
    });
    let of = |name: &str| -> Value {
        let found = all.iter().find(|job| job["key"] == format!("service/{name}"));
        let id = found.and_then(|job| job["id"].as_i64());
        jobs.show(id.unwrap_or_else(|| panic!("{name}: {all:?}")))
    };
    let steps = |job: &Value| -> Vec<String> {
        let text = |step: &Value, name: &str| step[name].as_str().unwrap_or_default().trim().to_owned();
        let steps = job["steps"].as_array().cloned().unwrap_or_default();
        let shown = steps.iter().map(|step| {
            format!(
                "{} {} {}",
                text(step, "name"),
                text(step, "status"),
                text(step, "output")
            )
        });
        shown.map(|line| line.trim_end().to_owned()).collect()
    };
    let wms = of("service-1");
    assert_has(&wms, json!({"status": "ok", "tenant": "region-1"}));
    assert_eq!(
        steps(&wms),
        [
            "congruence ok the record is whole",
            "url_status_codes ok 200",
            "wfs_capabilities not_applicable",
            "wfs_layers not_applicable",
            "wms_capabilities ok version 1.3.0",
            "wms_layers ok 2 layers",
        ]
    );
    let wfs = of("service-2");
    assert_eq!(wfs["status"], "warning", "{wfs}");
    assert_eq!(steps(&wfs)[2], "wfs_capabilities warning there is no version");
    let gone = of("gone");
    assert_eq!(
        (&gone["status"], steps(&gone)[1].as_str()),
        (&json!("error"), "url_status_codes error 404")
    );
    assert_eq!(
        steps(&of("wrong"))[0],
        "congruence error WMTS is no type of a service"
    );
    let (code, said, errors) = run(&[
        "run",
        "service",
        "--key",
        "service/service-1?",
        "--wait",
        "--json",
    ]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let sequence: Value = serde_json::from_str(&said).expect("JSON");
    assert_has(&sequence["sequence"], json!({"given": 10, "done": 10}));
    let (code, _, errors) = run(&["run", "service", "--key", "nothing"]);
    assert_eq!(
        (code, errors.contains("no job of this kind")),
        (Some(70), true),
        "{errors}"
    );
    let (_, listed, _) = run(&["last", "--by", "tenant"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
}
