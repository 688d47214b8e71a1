//! `forkyard status`: a summary of all pools, and one in full.

use crate::support::prelude::*;

fn status(daemon: &Daemon, arguments: &[&str]) -> Output {
    let arguments = [&["status"], arguments].concat();
    daemon.run(&arguments)
}

fn line(table: &str, name: &str) -> Vec<String> {
    let mut lines = table.lines().map(|line| line.split_whitespace());
    let line = lines.find(|line| line.clone().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("{name}: {table}"));
    line.map(str::to_owned).collect()
}

fn two_pools() -> Daemon {
    let daemon = Daemon::start(|dir| {
        let one = pool(dir, "one", "pm = \"static\"\nmax_children = 2\n", PHP);
        let two = pool(dir, "two", "pm = \"ondemand\"\nmax_children = 3\n", PHP);
        with_control(dir) + &one + &two
    });
    daemon.write("a.php", "<?php echo 'a';");
    daemon.write("wait.php", "<?php fopen(__DIR__ . '/gate', 'r'); echo 'through';");
    make_fifo(&daemon.dir.join("gate"));
    daemon
}

#[test]
fn three_hundred_pools_have_a_line_each_and_a_sum() {
    let daemon = Daemon::start(|dir| {
        let name = |number: u32| format!("site{number:03}");
        let cgi = application_in("cgi", dir, "");
        let settings = "pm = \"ondemand\"\nmax_children = 2\n";
        let pools: String = (0..300)
            .map(|number| pool(dir, &name(number), settings, &cgi))
            .collect();
        with_control(dir) + &pools
    });
    let begun = Instant::now();
    let output = status(&daemon, &[]);
    let took = begun.elapsed();
    assert!(output.status.success(), "{}", text_of(&output.stderr));
    let table = text_of(&output.stdout);
    assert_eq!(table.lines().count(), 304, "{table}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(
        line(&table, "site299"),
        [
            "site299", "ondemand", "serving", "0", "0", "2", "0", "0", "0", "-", "0.0", "s"
        ]
    );
    assert_starts(table.lines().last().unwrap_or_default(), "300 pools ");
    assert_eq!(line(&table, "300")[2..6], ["0", "0", "600", "0"]);
}

#[test]
fn one_pool_is_shown_with_its_requests() {
    let daemon = two_pools();
    assert_eq!(daemon.get("two", "a.php").body(), "a");
    wait_until("idle workers", || {
        let table = text_of(&status(&daemon, &[]).stdout);
        line(&table, "one")[3..5] == ["0", "2"] && line(&table, "two")[4] == "1"
    });
    let mut busy = daemon.send("one", &Params::get(&daemon.dir, "wait.php", "who=me"));
    let shown = until("a request that runs", || {
        let shown = text_of(&status(&daemon, &["one"]).stdout);
        shown.contains("Running").then_some(shown)
    });
    let running = shown
        .lines()
        .find(|line| line.contains("Running"))
        .expect("a line");
    assert_contains(running, " GET /wait.php?who=me  /");
    assert_contains(running, " MiB ");
    assert_contains(running, "1 requests");
    assert_contains(
        &shown,
        "\n  static, serving: 1 busy, 1 idle, 0 starting of 2; 0 connections wait of ",
    );
    assert_contains(&shown, "\n  workers made 2\n");
    assert_lacks(&shown, "pool two");
    let table = text_of(&status(&daemon, &["--sort", "busy"]).stdout);
    assert_eq!(
        line(&table, "one")[..6],
        ["one", "static", "serving", "1", "1", "2"]
    );
    assert_eq!(line(&table, "two")[5..8], ["3", "0", "1"]);
    assert_eq!(line(&table, "2")[..5], ["2", "pools", "1", "2", "5"]);
    let first = |sort: &str| {
        let table = text_of(&status(&daemon, &["--sort", sort]).stdout);
        table.lines().nth(3).map(|line| line[..3].to_owned())
    };
    for (sort, name) in [("name", "one"), ("busy", "one")] {
        assert_eq!(first(sort).as_deref(), Some(name), "{sort}");
    }
    // The order depends on which memory the kernel has shared by then.
    let table = text_of(&status(&daemon, &["--sort", "memory"]).stdout);
    let first = table.lines().nth(3).expect("a line");
    let [one, two] = ["one", "two"].map(|name| {
        let memory = &line(&table, name)[9];
        memory.parse::<f64>().expect("a number of MiB")
    });
    assert_eq!(first.starts_with("one") || one == two, one >= two, "{table}");
    let json: Value = serde_json::from_slice(&status(&daemon, &["two", "--json"]).stdout).expect("JSON");
    assert_eq!(json["pools"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["pools"][0]["counts"]["requests"], 1);
    assert_eq!(json["pools"][0]["limits"]["max_children"], 3);
    drop(fs::OpenOptions::new().write(true).open(daemon.dir.join("gate")));
    assert_eq!(busy.answer().expect("an answer").body(), "through");
    let output = status(&daemon, &["three"]);
    assert_eq!(output.status.code(), Some(70));
    assert_eq!(
        text_of(&output.stderr),
        "forkyard: there is no pool three; there are one, two\n"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal_and_states_have_colours() {
    let daemon = two_pools();
    let shown = |variables: &str| {
        let command = format!(
            "stty cols 64; {variables} {} status -c {}/forkyard.toml",
            env!("CARGO_BIN_EXE_forkyard"),
            daemon.dir.display()
        );
        let mut script = Command::new("script");
        let output = script.args(["-qec", &command, "/dev/null"]).output();
        text_of(&output.expect("script (Debian package bsdutils)").stdout)
    };
    let plain = shown("TERM=xterm NO_COLOR=1");
    assert_contains(&plain, "2 pools");
    assert_contains(&plain, "\none ");
    assert!(
        !plain.contains('\x1b') && !shown("TERM=dumb").contains('\x1b'),
        "{plain}"
    );
    for line in plain.lines() {
        assert!(line.trim_end().chars().count() <= 64, "{line}");
    }
    let coloured = shown("TERM=xterm NO_COLOR=");
    assert_contains(&coloured, "\x1b[1mPOOL");
    assert_eq!(
        coloured.matches("\x1b[32mserving\x1b[0m").count(),
        2,
        "{coloured}"
    );
    let whole = text_of(&status(&daemon, &[]).stdout);
    assert!(whole.lines().any(|line| line.ends_with("CPU")), "{whole}");
    assert!(!whole.contains('\x1b'), "{whole}");
}

#[test]
fn a_worker_that_is_being_made_is_as_old_as_it_is() {
    let begun = Instant::now();
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("wsgi.py"), "open('gate').read()\n").expect("write");
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
        nix::unistd::mkfifo(&dir.join("gate"), mode).expect("FIFO");
        let application = application_in("wsgi", dir, "preload = false\n");
        let pool = pool(dir, "www", "pm = \"static\"\nmax_children = 1\n", &application);
        with_control(dir) + &pool
    });
    let worker = until("a worker", || {
        let status = text_of(&status(&daemon, &["--json", "www"]).stdout);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let worker = status["pools"][0]["generations"][0]["workers"][0].clone();
        worker.is_object().then_some(worker)
    });
    assert_eq!(worker["stage"], "Creating", "{worker}");
    let age = worker["for_ms"].as_u64().expect("milliseconds");
    assert!(u128::from(age) <= begun.elapsed().as_millis(), "{worker}");
}
