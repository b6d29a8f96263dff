//! One persistent HTTP/1.1 connection, with only what a load generator needs, so that it leaves the processors to the server.

use std::io;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A connection, and the bytes read from it.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer: its status, and the range of its body in the buffer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

enum Length {
    Known(usize),
    Chunked,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            self.read_more().await?;
        };
        let (status, length) = parse_head(&self.buffer[..head])?;
        let end = match length {
            Length::Known(length) => {
                while self.buffer.len() < head + length {
                    self.read_more().await?;
                }
                head + length
            }
            Length::Chunked => {
                while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
                    self.read_more().await?;
                }
                self.buffer.len()
            }
        };
        Ok(Answer { status, body: &self.buffer[head..end] })
    }

    /// Sends a request whose answer does not end, and reads its head.
    pub(crate) async fn open_stream(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let (status, _) = parse_head(&self.buffer[..end + 4])?;
                self.buffer.drain(..end + 4);
                return Ok(status);
            }
            self.read_more().await?;
        }
    }

    /// Reads available bytes, at least one; `look` gets each complete line.
    pub(crate) async fn read_lines(&mut self, mut look: impl FnMut(&[u8])) -> io::Result<()> {
        self.read_more().await?;
        let mut begin = 0;
        while let Some(end) = find(&self.buffer[begin..], b"\n") {
            look(&self.buffer[begin..begin + end]);
            begin += end + 1;
        }
        self.buffer.drain(..begin);
        Ok(())
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Returns where bytes begin in a text.
pub(crate) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn parse_head(head: &[u8]) -> io::Result<(u16, Length)> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP/1.1 answer");
    let text = std::str::from_utf8(head).map_err(|_| malformed())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let mut length = Length::Known(0);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = Length::Known(value.trim().parse().map_err(|_| malformed())?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            length = Length::Chunked;
        }
    }
    Ok((status.ok_or_else(malformed)?, length))
}

/// The text of a request.
pub(crate) fn request(method: &str, path: &str, body: &str, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(method.as_bytes());
    into.push(b' ');
    into.extend_from_slice(path.as_bytes());
    into.extend_from_slice(b" HTTP/1.1\r\nhost: localhost\r\n");
    if !body.is_empty() {
        into.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
        into.extend_from_slice(body.len().to_string().as_bytes());
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(body.as_bytes());
}
