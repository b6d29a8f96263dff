//! The user that the files of a directory are for, if the superuser writes them for a service.

use std::path::Path;

/// A user and a group other than the superuser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    #[cfg(unix)]
    user: u32,
    #[cfg(unix)]
    group: u32,
}

#[cfg(unix)]
mod unix {
    use std::{
        fs, io,
        os::unix::fs::{MetadataExt as _, lchown},
    };

    use super::{Owner, Path};

    /// The user id of the superuser.
    const ROOT: u32 = 0;

    impl Owner {
        /// Returns the owner of the first of these that exists and is not the superuser's.
        pub(crate) fn of(paths: &[&Path]) -> Option<Self> {
            let owners = paths.iter().filter_map(|path| fs::metadata(path).ok());
            let mut owners = owners.map(|found| Self { user: found.uid(), group: found.gid() });
            owners.find(|owner| owner.user != ROOT)
        }

        /// Gives a file or directory to the owner, if the superuser has just created it.
        pub(crate) fn take(self, path: &Path) -> io::Result<()> {
            let found = fs::symlink_metadata(path)?;
            // A file with another name may be anything.
            let is_own = found.uid() == ROOT && (found.is_dir() || found.nlink() == 1);
            if is_own { lchown(path, Some(self.user), Some(self.group)) } else { Ok(()) }
        }
    }
}

#[cfg(not(unix))]
impl Owner {
    pub(crate) fn of(_: &[&Path]) -> Option<Self> {
        None
    }

    pub(crate) fn take(self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }
}
