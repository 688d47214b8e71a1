//! Prometheus scrapes OpenMetrics.

use super::{Running, Site};
use crate::support::prelude::*;

#[test]
fn prometheus_scrapes_the_metrics() {
    let site = Site::start();
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: php\n    metrics_path: /status\n    params:\n      \
         openmetrics: ['']\n    static_configs:\n      - targets: ['127.0.0.1:{}']\n",
        site.port
    );
    let prometheus = Running::prometheus(directory(), &text);
    until("a scrape", || {
        prometheus.ask("up{job=\"php\"}").filter(|up| *up > 0.5)
    });
    for (name, value) in [
        ("phpfpm_up", 1.0),
        ("phpfpm_idle_processes", 1.0),
        ("phpfpm_active_processes", 1.0),
        ("phpfpm_total_processes", 2.0),
        ("phpfpm_listen_queue", 0.0),
        ("phpfpm_accepted_connections", 4.0),
    ] {
        let seen = until(name, || prometheus.ask(name));
        assert!((seen - value).abs() < 0.1, "{name} {seen}");
    }
    prometheus.has_no_errors();
    drop(prometheus);
    site.finish();
}

/// A running Prometheus.
pub(crate) struct Prometheus {
    port: u16,
    _running: Running,
}

impl Running {
    /// Starts Prometheus with this configuration.
    pub(crate) fn prometheus(dir: TempDir, text: &str) -> Prometheus {
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
        Prometheus {
            port,
            _running: Running::start(command, "prometheus", dir),
        }
    }
}

impl Prometheus {
    /// Returns the value of a query's first series.
    pub(crate) fn ask(&self, query: &str) -> Option<f64> {
        self.query(query)?["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    }

    /// Returns the answer to a query.
    pub(crate) fn query(&self, query: &str) -> Option<Value> {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "10", "--get", "--data-urlencode"])
            .arg(format!("query={query}"))
            .arg(format!("http://127.0.0.1:{}/api/v1/query", self.port))
            .output()
            .expect("curl");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Checks that the last scrapes were read in full.
    pub(crate) fn has_no_errors(&self) {
        let targets = curl(&[&format!("http://127.0.0.1:{}/api/v1/targets", self.port)]);
        assert_contains(&targets, "\"lastError\":\"\"");
    }
}
