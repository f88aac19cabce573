//! The terminal of `--view`: taken when it is opened, given back on every way out.

use std::io::{IsTerminal, Stdout, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use inflight::consumer::{Consumer, PartitionProgress};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::view::{self, Partition};
use crate::{Failure, display};

/// Is the terminal ours? One for the process, since a signal may end it at any time.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back, if it is taken. From any thread, as often as one likes.
pub fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // There is nobody left to tell that it failed.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Is there a terminal to draw on?
pub fn check() -> Result<(), Failure> {
    match stdout().is_terminal() {
        true => Ok(()),
        false => Err("--view draws on a terminal, and stdout is none".into()),
    }
}

/// The view while it is shown. Dropped, also by a panic, it gives the terminal back.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    started: Instant,
    last: Instant,
    /// What each partition had finished at the last frame.
    finished: Vec<(String, u64)>,
}

impl Screen {
    pub fn open() -> Result<Self, Failure> {
        // What this thread says when it panics is for the terminal as it was. Panics of handlers
        // are in other threads, and end nothing.
        let (usual, own) = (panic::take_hook(), thread::current().id());
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == own {
                restore();
            }
            usual(info);
        }));
        TAKEN.store(true, Ordering::SeqCst);
        let open = || {
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(stdout()))
        };
        let terminal = open().inspect_err(|_| restore())?;
        let now = Instant::now();
        Ok(Self { terminal, started: now, last: now, finished: Vec::new() })
    }

    /// Draws how far the consumer is.
    pub fn draw(&mut self, consumer: &Consumer, ending: bool) -> Result<(), Failure> {
        let elapsed = self.last.elapsed().as_secs_f64().max(1e-9);
        self.last = Instant::now();
        let width = view::places(self.terminal.size()?.width);
        let progress = consumer.progress();
        let before = std::mem::take(&mut self.finished);
        let partition = |part: &PartitionProgress| {
            let known = before.iter().find(|(name, _)| *name == part.name);
            let done = part.finished - known.map_or(0, |(_, finished)| *finished);
            let held = part.held as u64;
            Partition {
                name: part.name.clone(),
                watermark: part.watermark,
                rate: done as f64 / elapsed,
                waiting: (part.count as u64).saturating_sub(held),
                held,
                span: part.span,
                head: display::head(part, progress.now),
                picture: consumer.picture(&part.name, width).unwrap_or_default(),
            }
        };
        let partitions: Vec<_> = progress.partitions.iter().map(partition).collect();
        self.finished =
            progress.partitions.iter().map(|part| (part.name.clone(), part.finished)).collect();
        let seconds = self.started.elapsed().as_secs_f64();
        self.terminal.draw(|frame| view::draw(frame, seconds, ending, &partitions))?;
        Ok(())
    }

    /// Was a key pressed that ends the run? In this mode of the terminal Ctrl-C is one.
    pub fn asks_to_end(&self) -> Result<bool, Failure> {
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && ends(&key)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn ends(key: &KeyEvent) -> bool {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q') => true,
            KeyCode::Char('c') => with_control,
            _ => false,
        }
}
