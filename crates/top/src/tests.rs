//! Frames of recorded readings, in terminals of several sizes.
//!
//! With `FORKYARD_GOLDEN=write`, the tests write the files that they compare with.

use crate::model::{Frame, Model};
use crate::readings::{Part, Readings, Sight};
use crate::screen::{Effect, Order, Press, Screen};
use crate::view::{self, Theme, View};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

const UNICODE: Theme = Theme {
    is_coloured: true,
    is_ascii: false,
};
const ASCII: Theme = Theme {
    is_coloured: false,
    is_ascii: true,
};

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/frames")
        .join(name)
}

fn readings(name: &str) -> Readings {
    let text = fs::read_to_string(place(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn frame() -> Frame {
    let mut model = Model::default();
    model.push(readings("before.json"));
    model.push(readings("after.json"))
}

fn drawn(frame: &Frame, screen: &Screen, theme: Theme, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let rows = screen.table(frame, theme);
    let pane = screen.pane(frame, &rows);
    let draw = |area: &mut ratatui::Frame<'_>| view::draw(frame, &rows, &pane, theme, area.buffer_mut());
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn assert_golden(name: &str, found: &str) {
    let path = place(name);
    if std::env::var_os("FORKYARD_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn every_view_is_drawn_as_recorded() {
    let frame = frame();
    for view in View::ALL {
        let screen = Screen::new(view);
        for (width, height) in [(80, 24), (120, 40)] {
            let found = text(&drawn(&frame, &screen, UNICODE, width, height));
            assert_golden(&format!("{}-{width}x{height}.txt", view.name()), &found);
        }
        let found = text(&drawn(&frame, &screen, ASCII, 80, 24));
        assert!(found.is_ascii(), "{found}");
        assert_golden(&format!("{}-ascii.txt", view.name()), &found);
    }
}

#[test]
fn a_frame_on_paper_has_all_rows() {
    let frame = frame();
    let shown = View::ALL.map(|view| view::plain(&frame, view, 500, ASCII));
    assert_golden("once.txt", &shown.join("\n"));
}

#[test]
fn a_frame_of_json_has_all_values() {
    let mut json = serde_json::to_string_pretty(&frame()).unwrap();
    json.push('\n');
    assert_golden("frame.json", &json);
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let frame = frame();
    let colours = |theme: Theme| {
        let buffer = drawn(&frame, &Screen::new(View::Pools), theme, 120, 40);
        let cells = buffer.content().iter();
        let used = cells.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        used.map(|cell| cell.fg).collect::<Vec<_>>()
    };
    let coloured = colours(UNICODE);
    assert!(coloured.contains(&Color::Red) && coloured.contains(&Color::Green));
    let plain = Theme {
        is_coloured: false,
        ..UNICODE
    };
    assert_eq!(colours(plain), []);
}

#[test]
fn no_terminal_is_too_small_and_no_text_too_odd() {
    let mut odd = readings("after.json");
    odd.status.pools[0].name = "\u{1b}[2J\u{5b57}\u{202e}e\u{301}\n".repeat(9);
    odd.status.pools[1].limits.max_children = 0;
    odd.status.pools[2].busy = u32::MAX;
    let mut model = Model::default();
    model.push(readings("before.json"));
    let frames = [Frame::default(), frame(), model.push(odd)];
    for frame in &frames {
        for view in View::ALL {
            let mut screen = Screen::new(view);
            for mode in [None, Some('?'), Some('r'), Some('/'), Some('s')] {
                let rows = screen.table(frame, UNICODE);
                if let Some(letter) = mode {
                    screen.press(Press::Escape, frame, &rows);
                    screen.press(Press::Letter(letter), frame, &rows);
                }
                let rows = screen.table(frame, UNICODE);
                let pane = screen.pane(frame, &rows);
                for (width, height) in sizes() {
                    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                    view::draw(frame, &rows, &pane, UNICODE, &mut buffer);
                }
                view::plain(frame, view, 30, ASCII);
            }
        }
    }
}

/// Small terminals, and some odd ones.
fn sizes() -> Vec<(u16, u16)> {
    let small = (0..7).flat_map(|width| (0..7).map(move |height| (width, height)));
    let others = (1..90).step_by(7).map(|width| (width, 90 - width));
    small
        .chain(others)
        .chain([(1, 200), (300, 1), (300, 100)])
        .collect()
}

#[test]
fn a_name_can_not_command_the_terminal() {
    let mut odd = readings("after.json");
    odd.status.pools[0].name = "\u{1b}[2J".to_owned();
    let frame = Model::default().push(odd);
    for view in View::ALL {
        let shown = text(&drawn(&frame, &Screen::new(view), UNICODE, 120, 40));
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}

#[test]
fn the_first_frame_has_no_rates() {
    let frame = Model::default().push(readings("after.json"));
    assert_eq!(frame.interval_seconds, None);
    for pool in &frame.pools {
        assert_eq!(
            (pool.requests_per_second, pool.p50, pool.cpu),
            (None, None, None),
            "{}",
            pool.name
        );
    }
}

#[test]
fn after_a_restart_of_the_daemon_nothing_falls() {
    let mut model = Model::default();
    model.push(readings("after.json"));
    let mut other = readings("before.json");
    other.status.pid += 1;
    assert_eq!(model.push(other).interval_seconds, None);
    // A pool of the same name that was closed and begun anew.
    let mut model = Model::default();
    model.push(readings("after.json"));
    let mut later = readings("before.json");
    later.at = 200.0;
    for pool in model.push(later).pools {
        let rates = [
            pool.requests_per_second,
            pool.cpu,
            pool.p50,
            pool.errors,
            pool.saturated,
        ];
        assert!(rates.iter().flatten().all(|rate| *rate >= 0.0), "{pool:?}");
    }
}

#[test]
fn missing_rights_and_parts_are_said() {
    let mut model = Model::default();
    for name in ["before.json", "after.json"] {
        let mut readings = readings(name);
        readings
            .looks
            .iter_mut()
            .for_each(|look| look.sight = Sight::Denied);
        readings.unknown = vec![Part::Routes];
        readings.routes.clear();
        let frame = model.push(readings);
        let routes = view::plain(&frame, View::Routes, 80, ASCII);
        assert!(routes.contains("this daemon does not count by route"), "{routes}");
        let pools = view::plain(&frame, View::Pools, 500, ASCII);
        assert!(pools.contains("no rights"), "{pools}");
    }
}

/// A screen, and keys that are pressed one after the other.
struct Keys {
    screen: Screen,
    frame: Frame,
}

impl Keys {
    fn new(view: View) -> Keys {
        Keys {
            screen: Screen::new(view),
            frame: frame(),
        }
    }

    fn press(&mut self, press: Press) -> Option<Effect> {
        let rows = self.screen.table(&self.frame, ASCII);
        self.screen.press(press, &self.frame, &rows)
    }

    fn letters(&mut self, letters: &str) -> Option<Effect> {
        letters
            .chars()
            .filter_map(|letter| self.press(Press::Letter(letter)))
            .last()
    }

    fn shown(&self) -> String {
        text(&drawn(&self.frame, &self.screen, ASCII, 100, 30))
    }
}

fn order(effect: Option<Effect>) -> Order {
    match effect {
        Some(Effect::Order(order)) => order,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_order_is_given_only_after_a_yes() {
    let mut keys = Keys::new(View::Pools);
    assert_eq!(keys.letters("rn"), None);
    assert!(keys.shown().contains("nothing was done"));
    assert_eq!(keys.letters("r"), None);
    assert!(keys.shown().contains("give pool shop new processes? (y/n)"));
    assert_eq!(order(keys.letters("y")), Order::RestartPool("shop".to_owned()));
    let mut keys = Keys::new(View::Applications);
    assert_eq!(
        order(keys.letters("ry")),
        Order::RestartApplication("/srv/sites/wiki".to_owned())
    );
    let mut keys = Keys::new(View::Jobs);
    assert_eq!(keys.letters("ry"), None);
}

#[test]
fn only_the_request_that_was_meant_is_ended() {
    let mut keys = Keys::new(View::Requests);
    assert_eq!(order(keys.letters("ky")), Order::EndRequest(4200));
    keys.letters("k");
    assert!(
        keys.shown()
            .contains("end the request of process 4200 in pool shop? (y/n)")
    );
    let meant = keys
        .frame
        .workers
        .iter_mut()
        .find(|row| row.pid == Some(4200))
        .unwrap();
    meant.requests += 1;
    assert_eq!(keys.letters("y"), None);
    assert!(keys.shown().contains("that request is over"));
    let mut keys = Keys::new(View::Pools);
    assert_eq!(keys.letters("ky"), None);
}

#[test]
fn a_report_is_that_of_the_row() {
    let mut keys = Keys::new(View::Pools);
    assert_eq!(
        order(keys.letters("e")),
        Order::Report(Some("5b0f9e21".to_owned()))
    );
    keys.press(Press::End);
    assert_eq!(order(keys.letters("e")), Order::Report(None));
    keys.letters("5");
    assert_eq!(
        order(keys.letters("e")),
        Order::Report(Some("c0ffee01".to_owned()))
    );
    keys.screen.show("report".to_owned(), "one\ntwo");
    assert!(keys.shown().contains("\none\ntwo\n"));
    keys.press(Press::Down);
    assert!(!keys.shown().contains("\none\n"));
    keys.press(Press::Escape);
    assert!(keys.shown().contains("AGO"));
}

#[test]
fn rows_are_selected_sorted_and_filtered() {
    let mut keys = Keys::new(View::Pools);
    keys.press(Press::Down);
    keys.press(Press::Down);
    assert_eq!(order(keys.letters("ry")), Order::RestartPool("www".to_owned()));
    // The selected row stays that row.
    keys.letters("s");
    assert_eq!(order(keys.letters("ry")), Order::RestartPool("www".to_owned()));
    keys.letters("/shop");
    assert!(keys.shown().contains("/shop"));
    keys.press(Press::Enter);
    let shown = keys.shown();
    assert!(shown.contains("\nshop") && !shown.contains("\nsites"), "{shown}");
    keys.press(Press::Escape);
    assert!(keys.shown().contains("\nsites"));
    keys.press(Press::Enter);
    assert!(keys.shown().contains("pool          "));
}

#[test]
fn a_pool_has_the_autopilot_s_number_and_reason() {
    let mut keys = Keys::new(View::Pools);
    keys.press(Press::Enter);
    let expected = "\nautopilot     max_children = 10; the autopilot would choose 6: memory; a worker\n\
                    \x20             has 30 MiB of its own\n";
    assert!(keys.shown().contains(expected), "{}", keys.shown());
}

#[test]
fn keys_of_all_kinds_do_no_harm() {
    let presses = [
        Press::Letter('r'),
        Press::Letter('/'),
        Press::Letter('k'),
        Press::Letter('s'),
        Press::Letter('S'),
        Press::Letter('y'),
        Press::Letter('?'),
        Press::Letter(' '),
        Press::Letter('e'),
        Press::Letter('\u{5b57}'),
        Press::Enter,
        Press::Escape,
        Press::Backspace,
        Press::Up,
        Press::Down,
        Press::PageUp,
        Press::PageDown,
        Press::Begin,
        Press::End,
    ];
    let mut state = 1_u64;
    let mut keys = Keys::new(View::Pools);
    let frames = [frame(), Frame::default()];
    for turn in 0..3_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as usize;
        let digit = char::from(b'1' + u8::try_from(at % 7).unwrap());
        let press = if at % 5 == 0 {
            Press::Letter(digit)
        } else {
            presses[at % presses.len()]
        };
        keys.frame = frames[usize::from(at % 11 == 0)].clone();
        let effect = keys.press(press);
        assert_ne!(effect, Some(Effect::Quit), "{turn}");
        if turn % 50 == 0 {
            keys.shown();
        }
    }
    assert_eq!(keys.press(Press::Interrupt), Some(Effect::Quit));
}
