//! A reader of PTX texts, as far as loading goes: kernels with their parameters, and global variables.
//!
//! The instructions are not read: a kernel's body is one of `kernels/`, found by its name.

use std::collections::BTreeMap;

/// The declarations of a text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ptx {
    /// As major * 10 + minor of `.version`.
    pub(crate) version: u32,
    /// The number in `.target sm_NN`.
    pub(crate) target: u32,
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) globals: BTreeMap<String, Global>,
}

/// A kernel.
#[derive(Debug, Default, PartialEq, Clone)]
pub(crate) struct Entry {
    pub(crate) params: Vec<Param>,
    /// `.maxntid`, if given: the product.
    pub(crate) max_threads: Option<u32>,
}

/// A parameter and where it lies among the others.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) struct Param {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A variable in the device's memory.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct Global {
    pub(crate) size: usize,
    /// The first bytes; the rest is zero.
    pub(crate) initial: Vec<u8>,
    /// True if the host has it too (`.attribute(.managed)`).
    pub(crate) managed: bool,
}

/// Why a text is not PTX that can be loaded. The program's fault.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadPtx {
    #[error("no .version directive")]
    NoVersion,
    #[error("no .target directive")]
    NoTarget,
    #[error("line {line}: {what}")]
    Syntax { line: usize, what: &'static str },
}

impl Ptx {
    /// Reads a text.
    pub(crate) fn read(text: &str) -> Result<Ptx, BadPtx> {
        let tokens = tokens(text)?;
        let mut reader = Reader { tokens: &tokens, at: 0, ptx: Ptx::default() };
        reader.text()?;
        if reader.ptx.version == 0 {
            return Err(BadPtx::NoVersion);
        }
        if reader.ptx.target == 0 {
            return Err(BadPtx::NoTarget);
        }
        Ok(reader.ptx)
    }
}

struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// Words and single punctuation marks, without comments.
fn tokens(text: &str) -> Result<Vec<Token<'_>>, BadPtx> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_whitespace() {
            line += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        } else if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            continue;
        } else if rest.starts_with("/*") {
            let unclosed = BadPtx::Syntax { line, what: "a comment that does not end" };
            let end = rest.find("*/").ok_or(unclosed)? + 2;
            line += rest[..end].matches('\n').count();
            rest = &rest[end..];
            continue;
        } else if first == '"' {
            let unclosed = BadPtx::Syntax { line, what: "a text that does not end" };
            rest[1..].find('"').ok_or(unclosed)? + 2
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if first.is_ascii_graphic() {
            1
        } else {
            return Err(BadPtx::Syntax { line, what: "a character that PTX does not have" });
        };
        tokens.push(Token { line, text: &rest[..length] });
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    ptx: Ptx,
}

impl<'a> Reader<'a> {
    fn text(&mut self) -> Result<(), BadPtx> {
        while let Some(word) = self.peek() {
            match word {
                ".version" => self.version()?,
                ".target" => self.target()?,
                ".address_size" => {
                    self.at += 1;
                    self.number()?;
                }
                ".visible" | ".extern" | ".weak" | ".common" => self.at += 1,
                ".entry" => self.entry()?,
                ".func" => self.body_or_end()?,
                ".global" | ".const" => self.variable()?,
                ".section" => self.body_or_end()?,
                ".file" => self.file()?,
                ".shared" | ".tex" | ".pragma" | ".alias" => self.skip_to_end()?,
                ";" => self.at += 1,
                _ => return Err(self.wrong("not a PTX directive")),
            }
        }
        Ok(())
    }

    /// Up to a body in braces and past it, or past a semicolon.
    fn body_or_end(&mut self) -> Result<(), BadPtx> {
        loop {
            match self.next("a body")? {
                ";" => return Ok(()),
                "{" => {
                    self.at -= 1;
                    return self.braces();
                }
                _ => {}
            }
        }
    }

    fn skip_to_end(&mut self) -> Result<(), BadPtx> {
        while self.next("a semicolon")? != ";" {}
        Ok(())
    }

    /// `.file 1 "name", 123, 456`: no mark says where it ends.
    fn file(&mut self) -> Result<(), BadPtx> {
        self.at += 1;
        self.number()?;
        self.next("a file's name")?;
        while self.peek() == Some(",") {
            self.at += 1;
            self.number()?;
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(), BadPtx> {
        self.at += 1;
        let word = self.next("a version")?;
        let (major, minor) = word.split_once('.').ok_or_else(|| self.wrong("a version"))?;
        let number = |text: &str| text.parse::<u32>().ok();
        let version = number(major).zip(number(minor)).map(|(major, minor)| major * 10 + minor);
        self.ptx.version = version.ok_or_else(|| self.wrong("a version"))?;
        Ok(())
    }

    fn target(&mut self) -> Result<(), BadPtx> {
        self.at += 1;
        let word = self.next("a target")?;
        let digits = word.strip_prefix("sm_").map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_alphabetic()));
        let target = digits.and_then(|digits| digits.parse().ok());
        self.ptx.target = target.ok_or_else(|| self.wrong("a target"))?;
        // Options of the target.
        while self.peek() == Some(",") {
            self.at += 2;
        }
        Ok(())
    }

    fn entry(&mut self) -> Result<(), BadPtx> {
        self.at += 1;
        let name = self.next("a kernel's name")?.to_owned();
        let mut entry = Entry::default();
        if self.peek() == Some("(") {
            self.at += 1;
            let mut end = 0;
            while self.peek() != Some(")") {
                let (size, align, _) = self.declaration()?;
                let offset = usize::next_multiple_of(end, align);
                entry.params.push(Param { offset, size });
                end = offset + size;
                if self.peek() == Some(",") {
                    self.at += 1;
                }
            }
            self.at += 1;
        }
        // Directives of the kernel, then its body; a declaration alone ends with a semicolon.
        while self.peek() != Some("{") {
            match self.next("a kernel's body")? {
                ".maxntid" => entry.max_threads = Some(self.product()?),
                ";" => return Ok(()),
                _ => {}
            }
        }
        self.braces()?;
        self.ptx.entries.insert(name, entry);
        Ok(())
    }

    /// `.param .align 8 .b8 name[32]` and the like: size, alignment, name.
    fn declaration(&mut self) -> Result<(usize, usize, &'a str), BadPtx> {
        let mut align = None;
        let mut element = None;
        loop {
            match self.next("a declaration")? {
                ".align" => align = Some(self.number()?),
                // The following words are about the memory pointed to.
                ".ptr" => {
                    if self.peek() == Some(".global") || self.peek() == Some(".const") {
                        self.at += 1;
                    }
                    if self.peek() == Some(".align") {
                        self.at += 2;
                    }
                }
                ".v2" | ".v4" => return Err(self.wrong("a vector parameter")),
                word if word.starts_with('.') => element = element.or_else(|| width(word)),
                name => {
                    let element = element.ok_or_else(|| self.wrong("a declaration without a type"))?;
                    let mut size = element;
                    while self.peek() == Some("[") {
                        self.at += 1;
                        size *= if self.peek() == Some("]") { 0 } else { self.number()? };
                        self.expect("]")?;
                    }
                    let align = align.unwrap_or(element);
                    if !align.is_power_of_two() {
                        return Err(self.wrong("an alignment that is no power of two"));
                    }
                    return Ok((size, align, name));
                }
            }
        }
    }

    fn variable(&mut self) -> Result<(), BadPtx> {
        self.at += 1;
        let managed = self.peek() == Some(".attribute");
        if managed {
            self.at += 1;
            self.expect("(")?;
            self.expect(".managed")?;
            self.expect(")")?;
        }
        let (mut size, _, name) = self.declaration()?;
        let mut initial = Vec::new();
        if self.peek() == Some("=") {
            self.at += 1;
            let element = self.element_width();
            initial = self.initialiser(element);
            size = size.max(initial.len());
            initial.resize(initial.len().min(size), 0);
        }
        self.skip_to_end()?;
        self.ptx.globals.insert(name.to_owned(), Global { size, initial, managed });
        Ok(())
    }

    /// The element type of the declaration that was just read.
    fn element_width(&self) -> usize {
        let before = self.tokens[..self.at].iter().rev().map(|token| token.text);
        let mut types = before.take_while(|word| *word != ";" && *word != "}");
        types.find_map(|word| word.strip_prefix('.').and_then(|_| width(word))).unwrap_or(1)
    }

    /// Numbers, alone or in braces; anything else (another variable's address) counts as zero.
    fn initialiser(&mut self, element: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut negative = false;
        while let Some(word) = self.peek() {
            match word {
                ";" => break,
                "{" | "}" | "," => {}
                "-" => negative = true,
                _ => {
                    let value = literal(word).unwrap_or(0);
                    let value = if negative { value.wrapping_neg() } else { value };
                    negative = false;
                    bytes.extend(&value.to_le_bytes()[..element.min(8)]);
                }
            }
            self.at += 1;
        }
        bytes
    }

    fn product(&mut self) -> Result<u32, BadPtx> {
        let mut product = self.number()? as u32;
        while self.peek() == Some(",") {
            self.at += 1;
            product = product.saturating_mul(self.number()? as u32);
        }
        Ok(product)
    }

    fn braces(&mut self) -> Result<(), BadPtx> {
        let mut depth = 0;
        loop {
            match self.next("a closing brace")? {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn number(&mut self) -> Result<usize, BadPtx> {
        let word = self.next("a number")?;
        literal(word).map(|value| value as usize).ok_or_else(|| self.wrong("a number"))
    }

    fn expect(&mut self, what: &'static str) -> Result<(), BadPtx> {
        if self.next(what)? == what { Ok(()) } else { Err(self.wrong(what)) }
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    fn next(&mut self, what: &'static str) -> Result<&'a str, BadPtx> {
        let word = self.peek().ok_or_else(|| self.wrong(what))?;
        self.at += 1;
        Ok(word)
    }

    fn wrong(&self, what: &'static str) -> BadPtx {
        let last = self.tokens.len().saturating_sub(1);
        let line = self.tokens.get(self.at.min(last)).map_or(1, |token| token.line);
        BadPtx::Syntax { line, what }
    }
}

/// Bytes of a fundamental type, or `None` if the word is none.
fn width(word: &str) -> Option<usize> {
    let bits = word.trim_start_matches(['.', 'b', 'u', 's', 'f']);
    match (word, bits) {
        (".pred", _) => Some(1),
        (_, "8") => Some(1),
        (_, "16") => Some(2),
        (_, "32") => Some(4),
        (_, "64") => Some(8),
        (_, "128") => Some(16),
        _ => None,
    }
}

/// An integer, or the bits of a float written as PTX does (`0f3F800000`).
fn literal(word: &str) -> Option<u64> {
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    if let Some(digits) = word.strip_prefix("0x") {
        return hex(digits.trim_end_matches('U'));
    }
    if let Some(digits) = word.strip_prefix("0f").or_else(|| word.strip_prefix("0d")) {
        return hex(digits);
    }
    word.trim_end_matches('U').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        // a comment
        .version 7.0
        .target sm_75, debug
        .address_size 64
        .global .align 4 .u32 counter = 5;
        .visible .global .align 8 .b8 table[16] = {1, 2, 0x7F};
        .const .align 4 .f32 one = 0f3F800000;
        .extern .shared .align 16 .b8 pool[];
        .func (.param .b32 result) helper (.param .b32 x) { ret; }
        .visible .entry add(
            .param .u64 add_param_0, .param .u64 add_param_1,
            .param .f32 add_param_2, .param .u64 add_param_3 )
        .maxntid 128, 2, 1
        { .reg .b32 %r<4>; { mov.u32 %r1, 0; } ret; }
        .visible .entry packed ( .param .align 8 .b8 packed_param_0[32] ) { ret; }
        .entry none() { ret; }
    ";

    #[test]
    fn kernels_have_their_parameters_at_natural_offsets() {
        let ptx = Ptx::read(TEXT).unwrap();
        assert_eq!((ptx.version, ptx.target), (70, 75));
        let offsets: Vec<_> = ptx.entries["add"].params.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(offsets, [(0, 8), (8, 8), (16, 4), (24, 8)]);
        assert_eq!(ptx.entries["add"].max_threads, Some(256));
        assert_eq!(ptx.entries["packed"].params, [Param { offset: 0, size: 32 }]);
        assert!(ptx.entries["none"].params.is_empty());
        assert_eq!(ptx.entries.len(), 3);
    }

    #[test]
    fn variables_have_their_size_and_first_contents() {
        let ptx = Ptx::read(TEXT).unwrap();
        assert_eq!(ptx.globals["counter"].initial, 5u32.to_le_bytes());
        assert_eq!(ptx.globals["table"], Global { size: 16, initial: vec![1, 2, 0x7F], managed: false });
        assert_eq!(ptx.globals["one"].initial, 1f32.to_le_bytes());
    }

    #[test]
    fn a_text_that_is_no_ptx_is_told_with_its_line() {
        assert_eq!(Ptx::read(""), Err(BadPtx::NoVersion));
        assert_eq!(Ptx::read(".version 7.0"), Err(BadPtx::NoTarget));
        let hello = Ptx::read("\nhello world");
        assert_eq!(hello, Err(BadPtx::Syntax { line: 2, what: "not a PTX directive" }));
        assert!(Ptx::read(".version 7.0\n.target sm_75\nnonsense\n").is_err());
        assert!(Ptx::read(".version 7.0 .target sm_75 .entry k ( .param .u64 a").is_err());
        assert!(Ptx::read(".version 7.0 .target sm_75 .entry k () { ").is_err());
        assert!(Ptx::read("\u{1}\u{2}").is_err());
    }
}
