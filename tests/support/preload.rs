//! The library that makes the disk of a process slower and its clock another, as `preload.c` describes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Compiles the library into a directory. Returns its path, `None` if there is no C compiler `cc`, or none for this.
pub fn compile(directory: &Path) -> io::Result<Option<PathBuf>> {
    let (source, library) = (directory.join("preload.c"), directory.join("preload.so"));
    fs::write(&source, include_str!("preload.c"))?;
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .stderr(Stdio::null())
        .status();
    Ok(compiled.is_ok_and(|status| status.success()).then_some(library))
}
