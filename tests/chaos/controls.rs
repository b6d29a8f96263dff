//! Sets how slow the disks of processes are, and how far ahead their clocks; `tests/support/preload.c` reads this.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// Controls that processes follow while they run; none if the library could not be compiled.
pub(super) struct Controls(Option<Followed>);

struct Followed {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

/// Byte offsets of the two numbers in the file.
const SYNC_US: u64 = 0;
const AHEAD_MS: u64 = 8;

impl Controls {
    /// Creates controls in a file of this directory.
    pub(super) fn new(library: Option<&Path>, directory: &Path, name: &str) -> Self {
        Self(library.map(|library| {
            let path = directory.join(name);
            let file = File::create_new(&path).unwrap();
            file.write_all_at(&[0; 16], 0).unwrap();
            Followed { library: library.to_owned(), path, file }
        }))
    }

    /// Returns the environment variables that make a process follow the controls.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let followed = self.0.iter();
        followed
            .flat_map(|followed| [("LD_PRELOAD", text(&followed.library)), ("FAULTS_FILE", text(&followed.path))])
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Makes every sync take this much longer from now on.
    pub(super) fn slow_syncs(&self, by: Duration) {
        self.set(SYNC_US, by.as_micros());
    }

    /// Sets the clock this far ahead from now on.
    pub(super) fn step_clock(&self, ahead: Duration) {
        self.set(AHEAD_MS, ahead.as_millis());
    }

    fn set(&self, at: u64, value: u128) {
        if let Some(Followed { file, .. }) = &self.0 {
            file.write_all_at(&i64::try_from(value).unwrap().to_ne_bytes(), at).unwrap();
        }
    }
}
