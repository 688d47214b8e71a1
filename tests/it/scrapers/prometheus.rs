//! Prometheus scrapes OpenMetrics.

use super::{Running, Site};
use crate::support::prelude::*;

#[test]
fn prometheus_scrapes_the_metrics() {
    let site = Site::start();
    let dir = directory();
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: php\n    metrics_path: /status\n    params:\n      \
         openmetrics: ['']\n    static_configs:\n      - targets: ['127.0.0.1:{}']\n",
        site.port
    );
    let file = dir.path().join("prometheus.yml");
    fs::write(&file, text).expect("prometheus.yml");
    let port = free_port();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let running = Running::start(command, "prometheus", dir);
    let ask = |query: &str| -> Option<f64> {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "10", "--get", "--data-urlencode"])
            .arg(format!("query={query}"))
            .arg(format!("http://127.0.0.1:{port}/api/v1/query"))
            .output()
            .expect("curl");
        let value: Value = serde_json::from_slice(&output.stdout).ok()?;
        value["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    };
    until("a scrape", || ask("up{job=\"php\"}").filter(|up| *up > 0.5));
    for (name, value) in [
        ("phpfpm_up", 1.0),
        ("phpfpm_idle_processes", 1.0),
        ("phpfpm_active_processes", 1.0),
        ("phpfpm_total_processes", 2.0),
        ("phpfpm_listen_queue", 0.0),
        ("phpfpm_accepted_connections", 4.0),
    ] {
        let seen = until(name, || ask(name));
        assert!((seen - value).abs() < 0.1, "{name} {seen}");
    }
    let targets = curl(&[&format!("http://127.0.0.1:{port}/api/v1/targets")]);
    assert_contains(&targets, "\"lastError\":\"\"");
    drop(running);
    site.finish();
}
