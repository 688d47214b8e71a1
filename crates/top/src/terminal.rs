//! The terminal: draws frames, and passes keys on.

use crate::model::{Frame, Model};
use crate::orders::{self, Outcome};
use crate::readings::Readings;
use crate::screen::{Effect, Press, Screen};
use crate::source::{Source, SourceError};
use crate::view::{self, Theme, View};
use forkyard_sys::terminal::{Input, wait_for_input};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// How long the loop waits for a key before it looks for new readings.
const TURN: Duration = Duration::from_millis(50);

/// A message of another thread.
#[derive(Debug)]
enum News {
    Readings(Box<Readings>),
    Lost(String),
    Outcome(Outcome),
}

/// Shows frames until the user leaves.
///
/// # Errors
/// The terminal can't be used.
pub(crate) fn run(
    socket: PathBuf,
    source: Source,
    first: Readings,
    interval: Duration,
    view: View,
    theme: Theme,
) -> io::Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    let (sender, news) = mpsc::channel();
    let wants_routes = Arc::new(AtomicBool::new(false));
    // The thread ends when this end of the channel is gone.
    let (_end, ended) = mpsc::channel();
    let reader = Reader {
        source,
        interval,
        wants_routes: Arc::clone(&wants_routes),
        news: sender.clone(),
        ended,
    };
    std::thread::Builder::new().spawn(move || reader.run())?;
    let mut model = Model::default();
    let frame = model.push(first);
    let mut window = Window {
        socket,
        theme,
        model,
        frame,
        screen: Screen::new(view),
        sender,
    };
    let keys = keys()?;
    let mut terminal = ratatui::try_init()?;
    let result = window.run(&mut terminal, &keys, &news, &is_over, &wants_routes);
    ratatui::try_restore()?;
    result
}

/// Opens the terminal that keys come from, as crossterm does.
fn keys() -> io::Result<OwnedFd> {
    let input = io::stdin();
    match input.is_terminal() {
        true => input.as_fd().try_clone_to_owned(),
        false => Ok(File::open("/dev/tty")?.into()),
    }
}

struct Reader {
    source: Source,
    interval: Duration,
    wants_routes: Arc<AtomicBool>,
    news: Sender<News>,
    ended: Receiver<()>,
}

impl Reader {
    fn run(mut self) {
        while self.ended.recv_timeout(self.interval) == Err(RecvTimeoutError::Timeout) {
            let news = match self.source.read(self.wants_routes.load(Ordering::Relaxed)) {
                Ok(readings) => News::Readings(Box::new(readings)),
                Err(error) => News::Lost(lost(&error)),
            };
            if self.news.send(news).is_err() {
                return;
            }
        }
    }
}

fn lost(error: &SourceError) -> String {
    format!("{error}; trying again")
}

struct Window {
    socket: PathBuf,
    theme: Theme,
    model: Model,
    frame: Frame,
    screen: Screen,
    sender: Sender<News>,
}

impl Window {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        keys: &OwnedFd,
        news: &Receiver<News>,
        is_over: &AtomicBool,
        wants_routes: &AtomicBool,
    ) -> io::Result<()> {
        let mut is_stale = true;
        while !is_over.load(Ordering::Relaxed) {
            if is_stale {
                self.draw(terminal)?;
            }
            is_stale = false;
            // If the terminal is gone, crossterm reads for ever.
            let input = wait_for_input(keys.as_fd(), TURN).map_err(io::Error::other)?;
            if input == Input::HungUp {
                return Ok(());
            }
            while event::poll(Duration::ZERO)? {
                let event = event::read()?;
                is_stale = true;
                if self.handle(&event) {
                    return Ok(());
                }
            }
            wants_routes.store(self.screen.view() == View::Routes, Ordering::Relaxed);
            for news in news.try_iter() {
                is_stale = true;
                self.take(news);
            }
        }
        Ok(())
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let rows = self.screen.table(&self.frame, self.theme);
        let pane = self.screen.pane(&self.frame, &rows);
        terminal.draw(|area| view::draw(&self.frame, &rows, &pane, self.theme, area.buffer_mut()))?;
        Ok(())
    }

    fn take(&mut self, news: News) {
        match news {
            News::Readings(readings) => {
                let frame = self.model.push(*readings);
                if !self.screen.is_frozen {
                    self.frame = frame;
                }
            }
            News::Lost(error) => self.screen.say(error),
            News::Outcome(Outcome::Message(message)) => self.screen.say(message),
            News::Outcome(Outcome::Text(title, text)) => self.screen.show(title, &text),
        }
    }

    /// Returns whether the user leaves.
    fn handle(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else {
            return false;
        };
        let Some(press) = press(key) else {
            return false;
        };
        let rows = self.screen.table(&self.frame, self.theme);
        match self.screen.press(press, &self.frame, &rows) {
            None => false,
            Some(Effect::Quit) => true,
            Some(Effect::Order(order)) => {
                let (socket, sender) = (self.socket.clone(), self.sender.clone());
                // The daemon may need some time, and keys go on.
                let run = move || {
                    // The window may be closed by then.
                    let _ = sender.send(News::Outcome(orders::carry_out(order, &socket)));
                };
                if let Err(error) = std::thread::Builder::new().spawn(run) {
                    self.screen.say(error.to_string());
                }
                false
            }
        }
    }
}

fn press(key: &KeyEvent) -> Option<Press> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if has_control => Some(Press::Interrupt),
        KeyCode::Char(_) if has_control => None,
        KeyCode::Char(letter) => Some(Press::Letter(letter)),
        KeyCode::Enter => Some(Press::Enter),
        KeyCode::Esc => Some(Press::Escape),
        KeyCode::Backspace => Some(Press::Backspace),
        KeyCode::Up => Some(Press::Up),
        KeyCode::Down => Some(Press::Down),
        KeyCode::PageUp => Some(Press::PageUp),
        KeyCode::PageDown => Some(Press::PageDown),
        KeyCode::Home => Some(Press::Begin),
        KeyCode::End => Some(Press::End),
        _ => None,
    }
}
