//! `top`: a screen of records, leases and rates that follows the feed.

mod figures;
mod screen;

use std::{
    io::{self, IsTerminal as _, stdout},
    pin::pin,
    time::{Duration, Instant},
};

use clap::Args;
use nameservice_api::{Record, SnapshotPage};
use nameservice_client::{ChangeEvent, ChangeFilter, Follow};
use tokio::{sync::mpsc, time::interval};

use self::{
    figures::{Figures, Reading},
    screen::{Key, Screen},
};
use super::leases::now;
#[cfg(unix)]
use crate::child::Signal;
use crate::{client::Request, failure::Failure, output, session::Session};

/// How often the screen is drawn.
const FRAME: Duration = Duration::from_secs(1);
/// The width and height of the output without a terminal.
const WIDTH: usize = 100;
const HEIGHT: usize = 40;

/// `top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Print once, as without a terminal
    #[arg(long)]
    pub once: bool,
}

pub(crate) async fn run(session: &Session, args: TopArgs) -> Result<(), Failure> {
    let prefix = args.prefix.filter(|prefix| !prefix.is_empty());
    let mut figures = Figures::new(Instant::now());
    let position = read(session, prefix.as_deref(), &mut figures).await?;
    if session.output.is_json() {
        return output::print(&format!("{:#}", figures.document(now())));
    }
    if args.once || !stdout().is_terminal() {
        return output::print(&figures.text(Reading::Once, now(), Instant::now(), (WIDTH, HEIGHT)).join("\n"));
    }
    let mut following = follow(session, prefix.clone(), position);
    let mut screen = Screen::open().map_err(Failure::Output)?;
    let (keys, mut pressed) = mpsc::channel(8);
    screen::listen(keys);
    let mut frame = interval(FRAME);
    let mut stop = pin!(stopped().map_err(Failure::Watch)?);
    loop {
        tokio::select! {
            _ = frame.tick() => {}
            // Dropping the screen restores the terminal.
            code = &mut stop => return Err(Failure::Ended(code)),
            key = pressed.recv() => match key {
                Some(Key::Redraw) => {}
                Some(Key::Quit) | None => return Ok(()),
            },
            event = following.next() => match event {
                Ok(ChangeEvent::Change(change)) => {
                    figures.take(&change, Instant::now());
                    // Drawn with the next frame, since there can be many changes.
                    continue;
                }
                // It is unknown what was missed, so everything is read again.
                Ok(_) => {
                    figures = Figures::new(Instant::now());
                    let position = read(session, prefix.as_deref(), &mut figures).await?;
                    following = follow(session, prefix.clone(), position);
                }
                Err(error) => return Err(Failure::Library(error.into())),
            },
        }
        let size = screen.size();
        let lines = figures.text(Reading::Live, now(), Instant::now(), size);
        screen.draw(&lines).map_err(Failure::Output)?;
    }
}

/// Completes when a signal asks this program to end, with the code to exit with.
fn stopped() -> io::Result<impl Future<Output = u8>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        Ok(async move {
            tokio::select! {
                _ = terminate.recv() => Signal::Terminate.exit_code(),
                _ = hangup.recv() => Signal::HangUp.exit_code(),
            }
        })
    }
    #[cfg(not(unix))]
    Ok(std::future::pending())
}

fn follow(session: &Session, prefix: Option<String>, position: u64) -> Follow {
    session.client.follow(ChangeFilter { prefix, ..ChangeFilter::default() }, Some(position))
}

/// Reads all records, and returns the position that they are as of.
async fn read(session: &Session, prefix: Option<&str>, figures: &mut Figures) -> Result<u64, Failure> {
    let (mut cursor, mut position) = (None, None);
    loop {
        let request = Request::get("snapshot").query("prefix", prefix).query("cursor", cursor.as_deref());
        let page = session.send::<SnapshotPage>(request).await?.value;
        // The position of the first page: the changes after it are followed.
        let from = *position.get_or_insert(page.position);
        page.records.iter().for_each(|record: &Record| figures.put(record));
        figures.at(from);
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(from),
        }
    }
}
