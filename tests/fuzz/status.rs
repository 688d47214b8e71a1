//! Status page queries and content.

use forkyard_fuzz::number_of;
use forkyard_scoreboard::status::{ListenQueue, PageFormat, Selection, Snapshot, WorkerRow, render};

pub(super) fn query(input: &[u8]) {
    let selection = Selection::from_query(input);
    let again = [input, b"&"].concat();
    assert_eq!(Selection::from_query(&again), selection);
    assert!(
        !Selection::from_query(&[input, b"&full"].concat())
            .format
            .eq(&PageFormat::Text)
            || selection.format == PageFormat::Text
    );
}

pub(super) fn pages(input: &[u8]) {
    let mut texts = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    let mut next = || texts.next().unwrap_or_default();
    let number = number_of(input, usize::MAX) as u64;
    let row = WorkerRow {
        pid: 7,
        state: "Running",
        start: number as i64,
        requests: number,
        duration_us: number,
        method: next(),
        uri: next(),
        query: next(),
        content_length: number,
        user: next(),
        script: input.to_vec(),
        last_cpu: f64::from_bits(number),
        last_memory: number,
        in_flight: Some(number as u32).filter(|_| number % 2 == 0),
        quiet: number as u32,
    };
    let snapshot = Snapshot {
        pool: "www".to_owned(),
        process_manager: "static",
        start: number as i64,
        now: (number / 3) as i64,
        utc_offset_s: 3600,
        accepted: number,
        listen_queue: ListenQueue::default(),
        idle: 1,
        active: 0,
        total: 1,
        max_active: 1,
        max_children_reached: 0,
        slow: number,
        memory_peak: Some(number),
        in_flight: Some(number as u32),
        quiet: number as u32,
        workers: vec![row],
    };
    let page = |format| render(&snapshot, Selection { format, full: true });
    let mut plain = snapshot.clone();
    for row in &mut plain.workers {
        (row.method, row.uri, row.query) = (b"GET".to_vec(), b"/".to_vec(), Vec::new());
        (row.user, row.script) = (Vec::new(), Vec::new());
    }
    let plain = |format| render(&plain, Selection { format, full: true });
    let json: serde_json::Value = serde_json::from_str(&page(PageFormat::Json)).expect("JSON");
    assert_eq!(json["processes"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["pool"], "www");
    for format in [
        PageFormat::Text,
        PageFormat::Html,
        PageFormat::Xml,
        PageFormat::Openmetrics,
    ] {
        let (page, plain) = (page(format), plain(format));
        let is_markup = matches!(format, PageFormat::Html | PageFormat::Xml);
        let is_order = |c: char| match is_markup {
            true => c < ' ' && !"\n\t\r".contains(c),
            false => c.is_control() && !"\n\t".contains(c),
        };
        assert!(!page.contains(is_order), "{page:?}");
        let count = |text: &str, mark: char| text.matches(mark).count();
        match format {
            PageFormat::Text => assert_eq!(count(&page, '\n'), count(&plain, '\n'), "{page}"),
            PageFormat::Html | PageFormat::Xml => {
                assert_eq!(
                    [count(&page, '<'), count(&page, '>')],
                    [count(&plain, '<'), count(&plain, '>')],
                    "{page}"
                );
            }
            _ => assert!(page.ends_with("# EOF\n")),
        }
    }
}
