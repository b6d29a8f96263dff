//! The terminal while `top` runs.

use std::{
    io::{self, Write as _, stdout},
    time::Duration,
};

use crossterm::{
    cursor, event, execute, queue, style,
    terminal::{self, ClearType},
};
use tokio::sync::mpsc;

/// How often the thread checks whether its keys are still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// The alternate screen of the terminal. Dropping it restores the main screen.
pub(super) struct Screen;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The size has changed.
    Redraw,
    Quit,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        // From here on, dropping it restores the terminal.
        let screen = Self;
        execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let (columns, lines) = terminal::size().unwrap_or((80, 24));
        (columns.into(), lines.into())
    }

    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut out = stdout().lock();
        for (line, row) in lines.iter().zip(0..) {
            queue!(out, cursor::MoveTo(0, row), style::Print(line), terminal::Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, terminal::Clear(ClearType::FromCursorDown))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Reads keys on a thread of its own, which ends when they are no longer wanted.
pub(super) fn listen(keys: mpsc::Sender<Key>) {
    std::thread::spawn(move || {
        while !keys.is_closed() {
            let key = match event::poll(LOOK) {
                Ok(false) => continue,
                Ok(true) => event::read().ok().and_then(key),
                // Without keys, only a signal ends the program.
                Err(_) => return,
            };
            if let Some(key) = key
                && keys.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
}

fn key(event: event::Event) -> Option<Key> {
    use event::{Event, KeyCode, KeyModifiers};
    match event {
        Event::Resize(..) => Some(Key::Redraw),
        Event::Key(key) => match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            // In raw mode, Ctrl-C is a key.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            _ => None,
        },
        _ => None,
    }
}
