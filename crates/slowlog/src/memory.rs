//! Reads another process's memory. None of it can be trusted.

/// The longest text, in bytes; php-fpm's limit.
pub(super) const TEXT_BYTES: usize = 1023;

pub(super) trait Memory {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()>;
}

pub(super) struct MemoryReader<'m> {
    memory: &'m dyn Memory,
    reads_left: u32,
}

impl<'m> MemoryReader<'m> {
    pub(super) fn new(memory: &'m dyn Memory, reads: u32) -> MemoryReader<'m> {
        MemoryReader {
            memory,
            reads_left: reads,
        }
    }

    pub(super) fn bytes(&mut self, base: u64, offset: u32, to: &mut [u8]) -> Option<()> {
        self.reads_left = self.reads_left.checked_sub(1)?;
        self.memory.read(base.checked_add(u64::from(offset))?, to)
    }

    pub(super) fn byte(&mut self, base: u64, offset: u32) -> Option<u8> {
        let mut byte = [0];
        self.bytes(base, offset, &mut byte)?;
        Some(byte[0])
    }

    pub(super) fn number(&mut self, base: u64, offset: u32) -> Option<u32> {
        let mut bytes = [0; 4];
        self.bytes(base, offset, &mut bytes)?;
        Some(u32::from_ne_bytes(bytes))
    }

    pub(super) fn word(&mut self, base: u64, offset: u32) -> Option<u64> {
        let mut bytes = [0; 8];
        self.bytes(base, offset, &mut bytes)?;
        Some(u64::from_ne_bytes(bytes))
    }

    pub(super) fn text(&mut self, base: u64, offset: u32, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(TEXT_BYTES);
        let mut text = vec![0; length];
        self.bytes(base, offset, &mut text)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(length);
        text.truncate(end);
        Some(text)
    }
}
