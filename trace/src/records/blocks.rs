//! The file of records: a header, the window, and the blocks that were appended before what the
//! window holds.

use std::io::{self, BufRead};

use super::{BLOCK_BYTES, HEADER, HEADER_BYTES, Kind, RECORD_BYTES, Words};
use crate::error::{RecordMistake, TraceError};

/// A block, and where it is in the file.
pub(super) struct Block {
    bytes: Vec<u8>,
    at: u64,
}

impl Block {
    fn read(input: &mut impl BufRead, at: u64) -> Result<Self, TraceError> {
        let mut bytes = vec![0; BLOCK_BYTES];
        let read = fill(input, &mut bytes, at)?;
        bytes.truncate(read);
        Ok(Self { bytes, at })
    }

    fn is_whole(&self) -> bool {
        self.bytes.len() == BLOCK_BYTES
    }

    /// The place of a record in the file.
    pub(super) fn place(&self, record: usize) -> u64 {
        self.at + (record * RECORD_BYTES) as u64
    }

    fn words(&self) -> impl Iterator<Item = Words> + '_ {
        let records = self.bytes.as_chunks::<RECORD_BYTES>().0.iter();
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        records.map(move |record| {
            let words = record.as_chunks().0;
            [word(&words[0]), word(&words[1]), word(&words[2])]
        })
    }

    /// The block's number; `None` if it is empty.
    fn number(&self) -> Result<Option<u64>, TraceError> {
        match self.words().next() {
            None | Some([0, ..]) => Ok(None),
            Some([first, number, 0]) if first == Kind::Block as u64 => Ok(Some(number)),
            Some(_) => Err(TraceError::Record { byte: self.at, mistake: RecordMistake::Block }),
        }
    }

    /// The records behind the first one, with their numbers in the block. The words 1 and 2 of the
    /// record behind them may be what a killed process had stored; zeros follow.
    pub(super) fn records(&self) -> Result<impl Iterator<Item = (usize, Words)> + '_, TraceError> {
        let used = self.words().take_while(|[first, ..]| *first != 0).count();
        let behind = self.words().enumerate().skip(used + 1);
        if let Some((record, _)) = behind.into_iter().find(|(_, words)| *words != [0; 3]) {
            let byte = self.place(record);
            return Err(TraceError::Record { byte, mistake: RecordMistake::AfterEnd });
        }
        Ok(self.words().take(used).enumerate().skip(1))
    }
}

/// The blocks of a file, in order.
pub(super) struct Blocks<R> {
    input: R,
    /// `None`: given already, so there are no more.
    window: Option<Block>,
    count: u64,
}

impl<R: BufRead> Blocks<R> {
    /// Reads what is between the first line and the blocks; gives the text about the process.
    pub(super) fn new(mut input: R) -> Result<(Self, String), TraceError> {
        let mut rest = [0; HEADER_BYTES - HEADER.len() - 1];
        let read = fill(&mut input, &mut rest, 0)?;
        let window = Block::read(&mut input, HEADER_BYTES as u64)?;
        let about = text(&rest).filter(|_| read == rest.len() && window.is_whole());
        let about = about.ok_or(TraceError::Record { byte: 0, mistake: RecordMistake::Header })?;
        Ok((Self { input, window: Some(window), count: 0 }, about))
    }

    pub(super) fn next(&mut self) -> Result<Option<Block>, TraceError> {
        let Some(window) = self.window.take() else { return Ok(None) };
        let at = HEADER_BYTES as u64 + (self.count + 1) * BLOCK_BYTES as u64;
        let block = Block::read(&mut self.input, at)?;
        let wrong = |byte| TraceError::Record { byte, mistake: RecordMistake::Block };
        if block.is_whole() {
            if block.number()? != Some(self.count) {
                return Err(wrong(at));
            }
            self.window = Some(window);
            self.count += 1;
            return Ok(Some(block));
        }
        match window.number()? {
            Some(number) if number == self.count => Ok(Some(window)),
            // It is also the last block: the process was ended before it had emptied it.
            Some(number) if number + 1 == self.count => Ok(None),
            None => Ok(None),
            Some(_) => Err(wrong(window.at)),
        }
    }
}

/// The text about the process, up to the first zero; behind that there are zeros only.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (text, zeros) = bytes.split_at(end);
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\n');
    let is_plain = !text.contains(char::is_control) && zeros.iter().all(|&byte| byte == 0);
    is_plain.then(|| text.to_owned())
}

/// Fills `buffer` as far as the input goes; gives how far.
fn fill(input: &mut impl BufRead, buffer: &mut [u8], at: u64) -> Result<usize, TraceError> {
    let mut read = 0;
    while read < buffer.len() {
        match input.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(TraceError::Unread { byte: at + read as u64, source }),
        }
    }
    Ok(read)
}
