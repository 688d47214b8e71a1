//! `packaging/monitoring`: rules, dashboard and scaling with Debian's Prometheus and numbers of a real daemon.

use super::Place;
use crate::it::documents::blocks;
use crate::it::scrapers::{Prometheus, Running};
use crate::support::prelude::*;

fn file(name: &str) -> PathBuf {
    blocks::root().join("packaging/monitoring").join(name)
}

fn promtool(arguments: &[&str], directory: &Path) -> (Option<i32>, String) {
    let mut command = Command::new("promtool");
    said_by(command.args(arguments).current_dir(directory))
}

#[test]
fn the_rules_pass_their_tests_and_a_wrong_rule_does_not() {
    let directory = file("");
    exited(Some(0), promtool(&["check", "rules", "rules.yml"], &directory));
    exited(
        Some(0),
        promtool(&["test", "rules", "rules.test.yml"], &directory),
    );
    let rules = read_file(file("rules.yml"));
    for (right, wrong) in [
        (") / forkyard_pool_workers_max", ")"),
        ("forkyard_saturated_share > 0.5", "forkyard_saturated_share > 1.5"),
        ("or (forkyard_pool_workers_max * 0)", ""),
    ] {
        let other = self::directory();
        let changed = rules.replacen(right, wrong, 1);
        assert_ne!(changed, rules, "{right}");
        write_file(other.path().join("rules.yml"), changed);
        fs::copy(file("rules.test.yml"), other.path().join("rules.test.yml")).expect("copy");
        let (code, text) = promtool(&["test", "rules", "rules.test.yml"], other.path());
        assert_ne!(code, Some(0), "{wrong}: {text}");
    }
}

/// Two pools of eight workers each: two of `app` and all of `full` are busy.
struct Load {
    prometheus: Prometheus,
    metrics: String,
    _busy: Vec<Client>,
    _daemon: Daemon,
}

impl Load {
    fn start() -> Load {
        let port = free_port();
        let daemon = Daemon::start(|dir| {
            let eight = |name: &str| {
                let application = PHP.to_owned();
                pool(dir, name, "pm = \"static\"\nmax_children = 8\n", &application)
            };
            format!(
                "[global]\n{}{}{}",
                Place::Tcp(port).key(),
                eight("app"),
                eight("full")
            )
        });
        daemon.write("hold.php", "<?php while (true) { usleep(10000); }");
        let params = Params::get(&daemon.dir, "hold.php", "");
        let of = |pool: &str, count: usize| -> Vec<Client> {
            (0..count).map(|_| daemon.send(pool, &params)).collect()
        };
        let busy = [of("app", 2), of("full", 8)].into_iter().flatten().collect();
        let place = Place::Tcp(port);
        let metrics = until("busy workers", || {
            let got = place.try_get("/metrics")?;
            let of = |pool: &str| {
                got.number(&format!(
                    "forkyard_pool_workers{{pool=\"{pool}\",state=\"busy\"}}"
                ))
            };
            (of("app") > 1.5 && of("full") > 7.5).then_some(got.body)
        });
        let text = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [{}]\nscrape_configs:\n  \
             - job_name: forkyard\n    static_configs:\n      - targets: ['127.0.0.1:{port}']\n",
            file("rules.yml").display()
        );
        Load {
            prometheus: Running::prometheus(directory(), &text),
            metrics,
            _busy: busy,
            _daemon: daemon,
        }
    }
}

/// The queries and thresholds of the ScaledObject, and the targets of the HorizontalPodAutoscaler.
fn triggers() -> Vec<(String, f64)> {
    let text = read_file(file("kubernetes.yaml"));
    let value = |line: &str, key: &str| line.trim().strip_prefix(key).map(str::to_owned);
    let queries = text.lines().filter_map(|line| value(line, "query: "));
    let thresholds = text.lines().filter_map(|line| value(line, "threshold: "));
    let thresholds = thresholds.map(|text| text.trim_matches('"').parse::<f64>().expect("a number"));
    let found: Vec<(String, f64)> = queries.zip(thresholds).collect();
    for (query, threshold) in &found {
        let name = query.split(['(', '{']).nth(1).expect("a metric");
        let target = format!("averageValue: \"{}m\"", (threshold * 1000.0).round());
        let (_, rest) = text
            .split_once(&format!("metric: {{ name: {name},"))
            .expect("in the autoscaler");
        assert_contains(rest.lines().nth(1).expect("its target"), &target);
    }
    assert_eq!(found.len(), 3);
    found
}

#[test]
fn two_busy_workers_of_eight_never_scale_out_and_eight_do() {
    let load = Load::start();
    let value = |query: &str| load.prometheus.ask(query);
    let triggers = triggers();
    let share = |pool: &str| value(&format!("forkyard_busy_share{{pool=\"{pool}\"}}"));
    // A rate over a minute takes a minute to reach the load, which is longer than one wait.
    for goal in [0.3, 0.6, 0.9] {
        until(&format!("a share of {goal} in the full pool"), || {
            share("full").filter(|share| *share > goal)
        });
    }
    for (query, threshold) in &triggers {
        let most = value(&format!("max_over_time(({query})[2m:1s])"));
        assert!(
            most.is_some_and(|most| most <= *threshold),
            "{query} was {most:?}"
        );
    }
    let few = share("app").expect("the share of the pool with two of eight");
    assert!((few - 0.25).abs() < 0.05, "{few}");
    for (query, threshold) in &triggers[..2] {
        let full = query.replace("\"app\"", "\"full\"");
        let seen = value(&full).expect("a number");
        assert!(seen > *threshold, "{full} is {seen}");
    }
}

#[test]
fn the_dashboard_and_the_rules_use_numbers_that_there_are() {
    let load = Load::start();
    until("a scrape", || load.prometheus.ask("forkyard_pool_up"));
    let dashboard = parsed(&read_file(file("grafana.json")));
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut queries = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().expect("targets") {
            queries.push(target["expr"].as_str().expect("a query").to_owned());
        }
    }
    assert!(queries.len() > 15);
    for query in &queries {
        let query = query
            .replace("$__rate_interval", "1m")
            .replace("$instance", ".*")
            .replace("$pool", ".*");
        let answer = load.prometheus.query(&query).expect("an answer");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
    }
    let rules = read_file(file("rules.yml"));
    let texts = [
        queries.join("\n"),
        rules.clone(),
        read_file(file("kubernetes.yaml")),
    ];
    let texts = texts.join("\n");
    let words = texts.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with("forkyard_")).collect();
    assert!(names.len() > 20);
    for name in names {
        let family = ["_total", "_bucket"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        let is_there = load.metrics.contains(&format!("# TYPE {family} "))
            || rules.contains(&format!("- record: {name}\n"));
        assert!(is_there, "there is no {name}");
    }
}
