//! The terminal while `top` has it.

use std::{
    io::{self, Write as _, stdout},
    time::Duration,
};

use crossterm::{
    cursor, event, execute, queue, style,
    terminal::{self, ClearType},
};
use tokio::sync::mpsc;

/// How often it is looked whether anybody listens to keys any more.
const LOOK: Duration = Duration::from_millis(200);

/// The other screen of the terminal, which shows the former one again when this is dropped.
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
        // From here on, what was changed is changed back.
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

/// Reads keys on a thread of its own, which ends when nobody wants them any more.
pub(super) fn listen(keys: mpsc::Sender<Key>) {
    std::thread::spawn(move || {
        while !keys.is_closed() {
            let key = match event::poll(LOOK) {
                Ok(false) => continue,
                Ok(true) => event::read().ok().and_then(key),
                // Without keys, only a signal ends it.
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
            // Ctrl-C is a key while the terminal is raw.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            _ => None,
        },
        _ => None,
    }
}
