//! Zabbix' agent, by the items of Zabbix' own template for php-fpm.

use super::Site;
use crate::support::prelude::*;

#[test]
fn the_zabbix_agent_reads_status_and_ping() {
    let site = Site::start();
    let dir = directory();
    let file = dir.path().join("agent.conf");
    let log = dir.path().join("log");
    write_file(
        &file,
        format!("LogFile={}\nServer=127.0.0.1\nAllowRoot=1\n", log.display()),
    );
    let item = |key: &str| {
        let output = Command::new("/usr/sbin/zabbix_agentd")
            .arg("-c")
            .arg(&file)
            .args(["-t", key])
            .output()
            .expect("zabbix_agentd (Debian package zabbix-agent)");
        text_of(&output.stdout)
    };
    let port = site.port;
    let page = item(&format!("web.page.get[127.0.0.1,\"/status?json\",{port}]"));
    let json = page
        .find('{')
        .and_then(|from| Some(&page[from..=page.rfind('}')?]));
    let value: Value = serde_json::from_str(json.expect("JSON")).expect("JSON");
    assert_eq!(value["pool"], "www");
    assert_eq!(value["process manager"], "static");
    for (name, value) in [
        ("idle processes", 1),
        ("active processes", 1),
        ("total processes", 2),
    ] {
        let expression = format!("\\\"{name}\\\":([0-9]+)");
        let said = item(&format!(
            "web.page.regexp[127.0.0.1,\"/status?json\",{port},\"{expression}\",,\"\\1\"]"
        ));
        assert!(said.contains(&format!("[s|{value}]")), "{name}: {said}");
    }
    let ping = item(&format!("web.page.get[127.0.0.1,/ping,{port}]"));
    assert_contains(&ping, "200 OK");
    assert_contains(&ping, "pong");
    site.finish();
}
