//! What keys do. Changes no process itself: it returns orders for the daemon.

use crate::model::Frame;
use crate::view::{Pane, Process, Row, Table, Target, Theme, View, details, remark, table};

/// A pressed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Press {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Begin,
    End,
    /// Control and C.
    Interrupt,
}

/// An order to the daemon, with the rights of this program's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    RestartPool(String),
    RestartApplication(String),
    /// The request of a process.
    EndRequest(i32),
    /// The report of an error; `None`: the last one.
    Report(Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Quit,
    Order(Order),
}

#[derive(Debug, Clone, Default, PartialEq)]
enum Mode {
    #[default]
    Table,
    /// The filter is being written.
    Filter,
    /// A question is open.
    Asks(Question),
    Help,
    Details(Target),
    /// The text of an answer.
    Text(String, Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
struct Question {
    text: String,
    order: Order,
    /// The selected request.
    process: Option<Process>,
}

/// The state of the terminal's picture.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    view: View,
    sort: [Option<usize>; View::ALL.len()],
    filter: String,
    selected: Option<Target>,
    mode: Mode,
    /// Lines above the shown part of a text.
    above: usize,
    message: String,
    pub(crate) is_frozen: bool,
}

const HELP: [&str; 17] = [
    "1..7     pools, workers, requests, routes, failures, applications, jobs",
    "up down  select a row; page up and down, home, end",
    "enter    all about the row",
    "s        sort by the next column; S by the one before",
    "/        show only rows with a text; an empty text shows all",
    "space    freeze, and go on",
    "e        the report of the row's error, or of the last one",
    "r        restart the row's pool or application; asks first",
    "k        end the row's request, its client gets 504; asks first",
    "?        this help",
    "q        quit",
    "",
    "Rates, percentiles and shares are of the last interval. P50, P95 and P99 are of the",
    "requests that ended in it; SAT is the part in which all workers were busy.",
    "WHY: the part of the busy time that computed (cpu), could have run but stood in the",
    "run queue, and waited. A few busy processes are looked at in each interval to see",
    "what for, which needs the rights of root or of their user.",
];
const KEYS: &str = "? help  enter detail  s sort  / filter  e error  r restart  k end  space freeze  q quit";
/// The rows of a page.
const PAGE: usize = 10;

impl Screen {
    pub(crate) fn new(view: View) -> Screen {
        Screen {
            view,
            ..Screen::default()
        }
    }

    pub(crate) fn view(&self) -> View {
        self.view
    }

    /// Returns the table of the view, in its order.
    pub(crate) fn table(&self, frame: &Frame, theme: Theme) -> Table {
        let mut rows = table(self.view, frame, theme);
        rows.arrange(self.sort[self.view as usize], &self.filter);
        rows
    }

    pub(crate) fn pane(&self, frame: &Frame, rows: &Table) -> Pane {
        let text = match &self.mode {
            Mode::Help => Some(("help".to_owned(), HELP.map(str::to_owned).to_vec())),
            Mode::Details(target) => {
                let gone = || vec!["it is gone".to_owned()];
                Some(("detail".to_owned(), details(target, frame).unwrap_or_else(gone)))
            }
            Mode::Text(title, lines) => Some((title.clone(), lines.clone())),
            Mode::Table | Mode::Filter | Mode::Asks(_) => None,
        };
        Pane {
            view: self.view,
            selected: self.position(rows),
            text: text.map(|(title, lines)| {
                let above = self.above.min(lines.len().saturating_sub(1));
                (title, lines, above)
            }),
            footer: self.footer(frame),
            is_urgent: matches!(self.mode, Mode::Asks(_)),
            is_frozen: self.is_frozen,
        }
    }

    fn footer(&self, frame: &Frame) -> String {
        match &self.mode {
            Mode::Asks(question) => format!("{} (y/n)", question.text),
            Mode::Filter => format!("/{}", self.filter),
            _ if !self.message.is_empty() => self.message.clone(),
            Mode::Help | Mode::Details(_) | Mode::Text(..) => {
                "up and down scroll, escape goes back".to_owned()
            }
            Mode::Table if !self.filter.is_empty() => {
                format!("only rows with {:?}; / changes that", self.filter)
            }
            Mode::Table => {
                match remark(frame).filter(|_| matches!(self.view, View::Workers | View::Requests)) {
                    Some(remark) => remark,
                    None => KEYS.to_owned(),
                }
            }
        }
    }

    /// Returns the place of the selected row; the first one if it is gone.
    fn position(&self, rows: &Table) -> Option<usize> {
        let is_selected = |row: &Row| self.selected.as_ref().is_some_and(|it| it.is_same(&row.target));
        let found = rows.rows.iter().position(is_selected);
        found.or((!rows.rows.is_empty()).then_some(0))
    }

    /// Shows a text until a key is pressed.
    pub(crate) fn say(&mut self, message: String) {
        self.message = message;
    }

    /// Shows an answer in place of the table.
    pub(crate) fn show(&mut self, title: String, text: &str) {
        self.above = 0;
        self.mode = Mode::Text(title, text.lines().map(str::to_owned).collect());
    }

    pub(crate) fn press(&mut self, press: Press, frame: &Frame, rows: &Table) -> Option<Effect> {
        if press == Press::Interrupt {
            return Some(Effect::Quit);
        }
        self.message.clear();
        match std::mem::take(&mut self.mode) {
            Mode::Table => self.on_table(press, frame, rows),
            Mode::Filter => {
                self.mode = self.on_filter(press);
                None
            }
            Mode::Asks(question) => self.on_answer(press, question, frame),
            mode => self.on_text(press, mode),
        }
    }

    fn on_table(&mut self, press: Press, frame: &Frame, rows: &Table) -> Option<Effect> {
        let target = self
            .position(rows)
            .and_then(|at| rows.rows.get(at))
            .map(|row| &row.target);
        match press {
            Press::Letter('q') => return Some(Effect::Quit),
            Press::Letter(digit @ '1'..='7') => {
                let at = digit.to_digit(10).unwrap_or(1) as usize - 1;
                self.view = View::ALL[at];
                self.selected = None;
            }
            Press::Letter('s') => self.sort_by_next(rows, true),
            Press::Letter('S') => self.sort_by_next(rows, false),
            Press::Letter('/') => {
                self.filter.clear();
                self.mode = Mode::Filter;
            }
            Press::Letter(' ') => self.is_frozen = !self.is_frozen,
            Press::Letter('?') => self.begin_text(Mode::Help),
            Press::Enter => {
                if let Some(target) = target {
                    self.begin_text(Mode::Details(target.clone()));
                }
            }
            Press::Letter('e') => {
                return Some(Effect::Order(Order::Report(
                    target.and_then(|it| report(it, frame)),
                )));
            }
            Press::Letter('r') => self.ask(
                target.and_then(restart),
                "select a pool or an application to restart",
            ),
            Press::Letter('k') => self.ask(target.and_then(end), "select a busy worker or a request: 2 or 3"),
            Press::Escape => self.filter.clear(),
            Press::Up | Press::Down | Press::PageUp | Press::PageDown | Press::Begin | Press::End => {
                self.select(press, rows);
            }
            Press::Letter(_) | Press::Backspace | Press::Interrupt => {}
        }
        None
    }

    fn begin_text(&mut self, mode: Mode) {
        self.above = 0;
        self.mode = mode;
    }

    fn ask(&mut self, question: Option<Question>, otherwise: &str) {
        match question {
            Some(question) => self.mode = Mode::Asks(question),
            None => self.message = otherwise.to_owned(),
        }
    }

    fn sort_by_next(&mut self, rows: &Table, is_forward: bool) {
        let sort = &mut self.sort[self.view as usize];
        let last = rows.columns.len().saturating_sub(1);
        *sort = match (*sort, is_forward) {
            (None, true) => Some(0),
            (None, false) => Some(last),
            (Some(column), true) => Some(column + 1).filter(|column| *column <= last),
            (Some(column), false) => column.checked_sub(1),
        };
    }

    fn select(&mut self, press: Press, rows: &Table) {
        let last = rows.rows.len().saturating_sub(1);
        let at = self.position(rows).unwrap_or(0);
        let at = moved(at, press).min(last);
        self.selected = rows.rows.get(at).map(|row| row.target.clone());
    }

    fn on_filter(&mut self, press: Press) -> Mode {
        match press {
            Press::Letter(letter) => self.filter.push(letter),
            Press::Backspace => _ = self.filter.pop(),
            Press::Escape => {
                self.filter.clear();
                return Mode::Table;
            }
            Press::Enter => return Mode::Table,
            Press::Up | Press::Down | Press::PageUp | Press::PageDown => {}
            Press::Begin | Press::End | Press::Interrupt => {}
        }
        Mode::Filter
    }

    fn on_answer(&mut self, press: Press, question: Question, frame: &Frame) -> Option<Effect> {
        if press != Press::Letter('y') {
            self.message = "nothing was done".to_owned();
            return None;
        }
        if let Some(process) = &question.process {
            let mut workers = frame.workers.iter();
            let is_meant = workers
                .any(|row| row.pid == Some(process.pid) && row.is_busy && row.requests == process.requests);
            // The worker may be at another request by now.
            if !is_meant {
                self.message = "that request is over".to_owned();
                return None;
            }
        }
        Some(Effect::Order(question.order))
    }

    fn on_text(&mut self, press: Press, mode: Mode) -> Option<Effect> {
        match press {
            Press::Escape | Press::Enter | Press::Letter('q' | '?' | 'e') | Press::Backspace => {}
            press => {
                self.above = moved(self.above, press);
                self.mode = mode;
            }
        }
        None
    }
}

/// Returns the place after a key, not bounded at the end.
fn moved(at: usize, press: Press) -> usize {
    match press {
        Press::Up => at.saturating_sub(1),
        Press::Down => at.saturating_add(1),
        Press::PageUp => at.saturating_sub(PAGE),
        Press::PageDown => at.saturating_add(PAGE),
        Press::Begin => 0,
        Press::End => usize::MAX - PAGE,
        Press::Letter(_) | Press::Enter | Press::Escape | Press::Backspace | Press::Interrupt => at,
    }
}

/// Returns the id of a row's report.
fn report(target: &Target, frame: &Frame) -> Option<String> {
    match target {
        Target::Failure { id, .. } => id.clone(),
        Target::Pool(name) => {
            let pool = frame.pools.iter().find(|row| row.name == *name);
            pool.and_then(|row| row.error.as_ref())
                .map(|error| error.id.clone())
        }
        Target::Application { name, .. } => {
            let mut errors = frame.failures.iter();
            let of_it = errors.find(|row| row.id.is_some() && row.text.starts_with(name.as_str()));
            of_it.and_then(|row| row.id.clone())
        }
        Target::Process(_) | Target::Route { .. } | Target::Queue(_) => None,
    }
}

fn restart(target: &Target) -> Option<Question> {
    let order = match target {
        Target::Application { name, .. } => Order::RestartApplication(name.clone()),
        Target::Process(Process {
            application: Some(name),
            ..
        }) => Order::RestartApplication(name.clone()),
        Target::Pool(pool) | Target::Route { pool, .. } | Target::Failure { pool, .. } => {
            Order::RestartPool(pool.clone())
        }
        Target::Process(process) => Order::RestartPool(process.pool.clone()),
        Target::Queue(_) => return None,
    };
    let text = match &order {
        Order::RestartApplication(name) => format!("give {name} new instances?"),
        _ => format!("give pool {} new processes?", pool_of(target)),
    };
    Some(Question {
        text,
        order,
        process: None,
    })
}

fn pool_of(target: &Target) -> &str {
    match target {
        Target::Pool(pool)
        | Target::Route { pool, .. }
        | Target::Failure { pool, .. }
        | Target::Application { pool, .. } => pool,
        Target::Process(process) => &process.pool,
        Target::Queue(name) => name,
    }
}

fn end(target: &Target) -> Option<Question> {
    let Target::Process(process) = target else {
        return None;
    };
    process.is_busy.then(|| Question {
        text: format!(
            "end the request of process {} in pool {}?",
            process.pid, process.pool
        ),
        order: Order::EndRequest(process.pid),
        process: Some(process.clone()),
    })
}
