//! collectd's curl_json and curl_xml, with values written by its csv plugin.

use super::{Running, Site};
use crate::support::prelude::*;

fn last(dir: &Path, plugin: &str, series: &str) -> Option<f64> {
    let entries = fs::read_dir(dir.join("csv/here").join(plugin)).ok()?;
    let file = entries.flatten().find(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{series}-20"))
    })?;
    let text = fs::read_to_string(file.path()).ok()?;
    let line = text.lines().last()?;
    line.split(',').nth(1)?.parse().ok()
}

#[test]
fn collectd_reads_json_and_xml() {
    let site = Site::start();
    let dir = directory();
    let path = dir.path().display();
    let names = [
        "accepted conn",
        "idle processes",
        "active processes",
        "total processes",
        "listen queue",
    ];
    let keys: String = names
        .iter()
        .map(|name| {
            format!(
                "<Key \"{name}\">\nType \"gauge\"\nInstance \"{}\"\n</Key>\n",
                name.replace(' ', "_")
            )
        })
        .collect();
    let rows = "<Key \"processes/*/requests\">\nType \"gauge\"\n</Key>\n";
    let paths: String = names
        .iter()
        .map(|name| {
            format!(
                "<XPath \"/status\">\nType \"gauge\"\nInstancePrefix \"{}\"\nValuesFrom \"{}\"\n</XPath>\n",
                name.replace(' ', "_"),
                name.replace(' ', "-")
            )
        })
        .collect();
    let text = format!(
        "Hostname here\nInterval 1\nBaseDir \"{path}\"\nPIDFile \"{path}/pid\"\nPluginDir \"/usr/lib/collectd\"\n\
         TypesDB \"/usr/share/collectd/types.db\"\nLoadPlugin logfile\n<Plugin logfile>\nFile stderr\n</Plugin>\n\
         LoadPlugin csv\nLoadPlugin curl_json\nLoadPlugin curl_xml\n<Plugin csv>\nDataDir \"{path}/csv\"\n</Plugin>\n\
         <Plugin curl_json>\n<URL \"{}\">\nInstance \"www\"\n{keys}</URL>\n<URL \"{}\">\nInstance \"rows\"\n{rows}</URL>\n\
         </Plugin>\n<Plugin curl_xml>\n<URL \"{}\">\nHost \"here\"\nInstance \"www\"\n{paths}</URL>\n</Plugin>\n",
        site.url("/status?json"),
        site.url("/own?json&full"),
        site.url("/status?xml&full")
    );
    let file = dir.path().join("collectd.conf");
    fs::write(&file, text).expect("collectd.conf");
    let mut command = Command::new("/usr/sbin/collectd");
    command.args(["-f", "-C"]).arg(&file);
    let running = Running::start(command, "collectd", dir);
    let dir = running.directory.path();
    for plugin in ["curl_json-www", "curl_xml-www"] {
        for (series, value) in [
            ("gauge-idle_processes", 1.0),
            ("gauge-active_processes", 1.0),
            ("gauge-total_processes", 2.0),
            ("gauge-listen_queue", 0.0),
        ] {
            // Another of collectd's own requests may run at the time: the expected value repeats.
            until(&format!("{plugin} {series}"), || {
                last(dir, plugin, series).filter(|seen| (seen - value).abs() < 0.1)
            });
        }
        let accepted = until("requests", || last(dir, plugin, "gauge-accepted_conn"));
        assert!(accepted >= 4.0, "{plugin}: {accepted}");
    }
    // The worker that answers counts its own request, too.
    until("the workers", || {
        let rows = [0, 1].map(|row| last(dir, "curl_json-rows", &format!("gauge-processes-{row}-requests")));
        (rows[0]? + rows[1]? >= 5.0).then_some(())
    });
    drop(running);
    site.finish();
}
