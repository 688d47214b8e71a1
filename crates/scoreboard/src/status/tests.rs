use super::*;

fn snapshot() -> Snapshot {
    let idle = WorkerRow {
        pid: 6317,
        state: "Idle",
        start: 1_795_204_874,
        requests: 3,
        duration_us: 112,
        method: b"GET".to_vec(),
        uri: b"/status".to_vec(),
        query: b"xml".to_vec(),
        content_length: 0,
        user: Vec::new(),
        script: b"-".to_vec(),
        last_cpu: 12.345,
        last_memory: 2_097_152,
        in_flight: None,
        quiet: 0,
    };
    let hostile = WorkerRow {
        pid: 6318,
        state: "Running",
        method: b"G\"<\n".to_vec(),
        uri: b"/a<b>&'\"\x01\xff\n\xe2\x80\xa8".to_vec(),
        query: "q=\u{1F600}é\\".as_bytes().to_vec(),
        user: b"</td><script>".to_vec(),
        script: b"/srv/\"},{\"pid\":1".to_vec(),
        last_cpu: f64::NAN,
        last_memory: 0,
        ..idle.clone()
    };
    Snapshot {
        pool: "www".to_owned(),
        process_manager: "static",
        start: 1_795_204_874,
        now: 1_795_204_875,
        utc_offset_s: 3600 * 5 + 1800,
        accepted: 7,
        listen_queue: ListenQueue {
            current: 1,
            max: 2,
            len: 128,
        },
        idle: 1,
        active: 1,
        total: 2,
        max_active: 1,
        max_children_reached: 0,
        slow: 0,
        memory_peak: None,
        in_flight: None,
        quiet: 0,
        workers: vec![idle, hostile],
    }
}

fn page(query: &str) -> String {
    String::from_utf8(status(b"GET", query.as_bytes(), &snapshot()).body).unwrap()
}

#[test]
fn text_has_values_in_one_column_and_one_line_for_each() {
    let text = page("full");
    assert!(text.starts_with("pool:                 www\nprocess manager:      static\nstart time:           21/Nov/2026:01:31:14 +0530\n"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 14 + 2 * (2 + 13));
    assert_eq!(
        lines[14..17],
        ["", "************************", "pid:                  6317"]
    );
    assert!(
        text.contains("\nlast request cpu:     12.35\n") || text.contains("\nlast request cpu:     12.34\n")
    );
    assert!(text.contains("\nrequest method:       G\"<\\x0a\n"));
    assert!(text.contains("\nrequest URI:          /a<b>&'\"\\x01\u{FFFD}\\x0a\\u2028?q=\u{1F600}é\\\n"));
    assert!(text.ends_with("\nlast request cpu:     0.00\nlast request memory:  0\n"));
}

#[test]
fn json_is_json_whatever_a_client_sends() {
    let json: serde_json::Value = serde_json::from_str(&page("json&full")).unwrap();
    let row = &json["processes"][1];
    assert_eq!(
        row["request uri"],
        "/a<b>&'\"\u{1}\u{FFFD}\n\u{2028}?q=\u{1F600}é\\"
    );
    assert_eq!(row["user"], "</td><script>");
    assert_eq!(row["script"], "/srv/\"},{\"pid\":1");
    assert_eq!(json["processes"].as_array().unwrap().len(), 2);
    let text = page("json&full");
    assert!(
        text.contains(r#""request uri":"\/a<b>&'\"\u0001\ufffd\n\u2028?q=\ud83d\ude00\u00e9\\","#),
        "{text}"
    );
    assert!(text.contains("\"slow requests\":0, \"processes\":[{\"pid\":6317,"));
}

#[test]
fn markup_holds_no_markup_of_a_client() {
    for query in ["xml&full", "html&full"] {
        let text = page(query);
        assert!(
            text.contains("/a&lt;b&gt;&amp;'&quot;\u{FFFD}\u{FFFD}\n\u{FFFD}?q=\u{1F600}é\\"),
            "{text}"
        );
        assert!(text.contains("&lt;/td&gt;&lt;script&gt;"));
        assert!(!text.contains("<script>") || query == "xml&full");
    }
    assert_eq!(page("xml&full").matches("<script>").count(), 2);
}

#[test]
fn a_pools_name_can_not_break_a_metric() {
    let hostile = Snapshot {
        pool: "a\"\\b".to_owned(),
        ..snapshot()
    };
    let text = render(
        &hostile,
        Selection {
            format: PageFormat::Openmetrics,
            full: false,
        },
    );
    assert!(
        text.starts_with("# HELP phpfpm_up Could pool a\\\"\\\\b using a static PM on PHP-FPM be reached?\n")
    );
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn times_of_no_calendar_are_shown_as_numbers() {
    let odd = Snapshot {
        start: i64::MAX,
        now: i64::MIN,
        utc_offset_s: i32::MAX,
        ..snapshot()
    };
    let text = render(
        &odd,
        Selection {
            format: PageFormat::Text,
            full: true,
        },
    );
    assert!(text.contains("start time:           9223372036854775807\nstart since:          0\n"));
    let west = Snapshot {
        utc_offset_s: -3600 * 3 - 1800,
        ..snapshot()
    };
    let text = render(
        &west,
        Selection {
            format: PageFormat::Text,
            full: false,
        },
    );
    assert!(text.contains("start time:           20/Nov/2026:16:31:14 -0330\n"));
}

#[test]
fn keys_select_as_in_php() {
    use PageFormat::{Html, Json, Openmetrics, Text, Xml};
    // Verified with php-fpm 8.2.
    for (query, format, full) in [
        ("", Text, false),
        ("json", Json, false),
        ("j", Json, false),
        ("js", Json, false),
        ("jsonx", Text, false),
        ("?json", Text, false),
        ("JSON", Text, false),
        ("json=0", Json, false),
        ("json[]=1", Json, false),
        ("json[a]=1", Json, false),
        (" json", Json, false),
        ("+json", Json, false),
        ("json ", Text, false),
        ("json+", Text, false),
        ("%6ason", Json, false),
        ("jso%6e=1", Json, false),
        ("json%00x", Json, false),
        ("json.x", Text, false),
        ("json[", Text, false),
        ("[json", Text, false),
        ("j%5Bx", Text, false),
        ("json;x", Text, false),
        ("x;json", Text, false),
        ("=json", Text, false),
        ("x&&json", Xml, false),
        ("h&x&j", Html, false),
        ("o", Openmetrics, false),
        ("ful&js", Json, true),
        ("f&j", Json, true),
        ("full[]&json", Json, true),
        ("openmetrics&full", Openmetrics, true),
        ("&", Text, false),
        ("%", Text, false),
        ("%zz", Text, false),
    ] {
        assert_eq!(
            Selection::from_query(query.as_bytes()),
            Selection { format, full },
            "{query}"
        );
    }
}

#[test]
fn answers_have_php_fpms_headers() {
    let expires = ("Expires", "Thu, 01 Jan 1970 00:00:00 GMT");
    let cache = ("Cache-Control", "no-cache, no-store, must-revalidate, max-age=0");
    for (query, content_type) in [
        ("", ("Content-type", "text/plain;charset=UTF-8")),
        ("html", ("Content-type", "text/html;charset=UTF-8")),
        ("xml", ("Content-type", "text/xml;charset=UTF-8")),
        ("json", ("Content-Type", "application/json")),
        (
            "openmetrics",
            (
                "Content-Type",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ),
        ),
    ] {
        let answer = status(b"GET", query.as_bytes(), &snapshot());
        assert_eq!(answer.headers, [expires, cache, content_type]);
        assert_eq!(answer.content_type(), content_type.1);
        let head = status(b"HEAD", query.as_bytes(), &snapshot());
        assert_eq!(
            head.headers,
            [expires, cache, ("Content-type", "text/html; charset=UTF-8")]
        );
        assert_eq!(head.body, b"");
    }
    let pong = ping(b"GET", "pong");
    assert_eq!(
        pong.headers,
        [("Content-type", "text/plain;charset=UTF-8"), expires, cache]
    );
    assert_eq!(pong.body, b"pong");
    assert_eq!(
        ping(b"HEAD", "pong"),
        StatusAnswer {
            body: Vec::new(),
            ..pong
        }
    );
}

/// php-fpm shows it from PHP 8.4 on, as the last field.
#[test]
fn the_peak_of_memory_is_shown_where_there_is_one() {
    let mut snapshot = snapshot();
    snapshot.workers.clear();
    for (query, without, with) in [
        (
            "",
            "slow requests:        0\n",
            "slow requests:        0\nmemory peak:          4194304\n",
        ),
        (
            "json",
            "\"slow requests\":0}",
            "\"slow requests\":0,\"memory peak\":4194304}",
        ),
        (
            "xml",
            "<slow-requests>0</slow-requests>",
            "<memory-peak>4194304</memory-peak>",
        ),
        (
            "html",
            "<tr><th>slow requests</th><td>0</td></tr>",
            "<tr><th>memory peak</th><td>4194304</td></tr>",
        ),
        (
            "openmetrics",
            "phpfpm_slow_requests 0\n",
            "# TYPE phpfpm_memory_peak gauge\nphpfpm_memory_peak 4194304\n# EOF\n",
        ),
    ] {
        for (peak, shown) in [(None, without), (Some(4_194_304), with)] {
            snapshot.memory_peak = peak;
            let page = String::from_utf8(status(b"GET", query.as_bytes(), &snapshot).body).unwrap();
            assert!(page.contains(shown), "{query}: {page}");
            assert_eq!(page.contains("4194304"), peak.is_some(), "{query}");
        }
    }
}

#[test]
fn requests_in_flight_come_behind_php_fpms_fields_of_pool_and_worker() {
    let mut many = snapshot();
    (many.in_flight, many.quiet) = (Some(5), 1);
    many.workers[0].in_flight = Some(2);
    (many.workers[1].in_flight, many.workers[1].quiet) = (Some(3), 1);
    let page = |query: &str| String::from_utf8(status(b"GET", query.as_bytes(), &many).body).unwrap();
    let text = page("full");
    assert!(
        text.contains("\nslow requests:        0\nrequests in flight:   5\nidle streams:         1\n"),
        "{text}"
    );
    assert!(
        text.ends_with("\nlast request memory:  0\nrequests in flight:   3\nidle streams:         1\n"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&page("json&full")).unwrap();
    assert_eq!(
        (
            &json["requests in flight"],
            &json["processes"][0]["requests in flight"]
        ),
        (&5.into(), &2.into())
    );
    let xml = page("xml&full");
    assert!(
        xml.contains(
            "<last-request-memory>0</last-request-memory><requests-in-flight>3</requests-in-flight><idle-streams>1</idle-streams>"
        )
    );
    let html = page("html&full");
    assert!(
        html.contains("<th>last request memory</th><th>requests in flight</th><th>idle streams</th></tr>")
    );
    assert!(
        html.contains("<td>2097152</td><td>2</td><td>0</td></tr>"),
        "{html}"
    );
    assert!(!super::tests::page("html&full").contains("in flight"));
}
