//! The file of records: a header, the window, and the blocks that were appended before what the
//! window holds.

use std::io::{self, BufRead};

use super::{BLOCK_BYTES, HEADER, HEADER_BYTES, Kind, WORDS_MAX};
use crate::error::{RecordMistake, TraceError};

/// A block, and where it is in the file.
pub(super) struct Block {
    /// Fewer than the block has, if the file ends before.
    words: Vec<u64>,
    at: u64,
}

impl Block {
    fn read(input: &mut impl BufRead, at: u64) -> Result<Self, TraceError> {
        let mut bytes = vec![0; BLOCK_BYTES];
        let read = fill(input, &mut bytes, at)?;
        let words = bytes[..read].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        Ok(Self { words: words.collect(), at })
    }

    fn is_whole(&self) -> bool {
        self.words.len() * 8 == BLOCK_BYTES
    }

    /// The place of a word in the file.
    pub(super) fn byte(&self, word: usize) -> u64 {
        self.at + word as u64 * 8
    }

    /// The block's number; `None` if it is empty.
    fn number(&self) -> Result<Option<u64>, TraceError> {
        match self.words[..] {
            [] | [0, ..] => Ok(None),
            [first, number, ..] if first == Kind::Block as u64 => Ok(Some(number)),
            _ => Err(TraceError::Record { byte: self.at, mistake: RecordMistake::Block }),
        }
    }

    /// The words of all records behind the block's number: from a place on as many as a record may
    /// have. What takes a record says how many it has had, and so where the next one is.
    pub(super) fn each_record(
        &self,
        mut take: impl FnMut(&[u64]) -> Result<usize, RecordMistake>,
    ) -> Result<(), TraceError> {
        let mut at = 2;
        while let Some(first) = self.words.get(at)
            && *first != 0
        {
            let end = self.words.len().min(at + WORDS_MAX);
            let wrong = |mistake| TraceError::Record { byte: self.byte(at), mistake };
            at += take(&self.words[at..end]).map_err(wrong)?;
        }
        // A killed process may have stored all of its next record but the first word.
        let mut behind = (at + WORDS_MAX..).zip(self.words.iter().skip(at + WORDS_MAX));
        match behind.find(|(_, word)| **word != 0) {
            Some((word, _)) => {
                Err(TraceError::Record { byte: self.byte(word), mistake: RecordMistake::AfterEnd })
            }
            None => Ok(()),
        }
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
            Some(number) if number.checked_add(1) == Some(self.count) => Ok(None),
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
