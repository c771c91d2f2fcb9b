//! The picture on a guestless machine's display, as pixels and as PNG (RFC 2083).

use std::io::Write as _;

use flate2::{Compression, Crc, write::ZlibEncoder};

/// Pixels in a line.
pub(super) const WIDTH: u16 = 128;
/// Lines.
pub(super) const HEIGHT: u16 = 96;

/// Red, green and blue of a pixel. Each number is another picture.
pub(super) fn pixel(number: u32, x: u16, y: u16) -> [u8; 3] {
    let [low, high, ..] = number.wrapping_mul(37).to_le_bytes();
    let ramp = |position: u16| position.to_le_bytes()[0].wrapping_mul(2);
    [
        ramp(x).wrapping_add(low),
        ramp(y).wrapping_add(high),
        low ^ 0x55,
    ]
}

/// The picture as PNG: eight bits of red, green and blue, no filter.
pub(super) fn png(number: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(13);
    header.extend(u32::from(WIDTH).to_be_bytes());
    header.extend(u32::from(HEIGHT).to_be_bytes());
    // Depth 8, true colour, deflate, adaptive filters, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut out, *b"IHDR", &header);
    chunk(&mut out, *b"IDAT", &pixels(number));
    chunk(&mut out, *b"IEND", &[]);
    out
}

fn pixels(number: u32) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    for y in 0..HEIGHT {
        let mut line = vec![0];
        line.extend((0..WIDTH).flat_map(|x| pixel(number, x, y)));
        // A Vec takes everything.
        let _ = encoder.write_all(&line);
    }
    encoder.finish().unwrap_or_default()
}

fn chunk(out: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let length = u32::try_from(data.len()).unwrap_or_default();
    let mut crc = Crc::new();
    crc.update(&kind);
    crc.update(data);
    out.extend(length.to_be_bytes());
    out.extend(kind);
    out.extend(data);
    out.extend(crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// The chunks of a PNG, with their sums checked.
    fn chunks(mut png: &[u8]) -> Vec<([u8; 4], Vec<u8>)> {
        png = png.strip_prefix(b"\x89PNG\r\n\x1a\n").unwrap();
        let mut found = Vec::new();
        while !png.is_empty() {
            let length = u32::from_be_bytes(png[..4].try_into().unwrap()) as usize;
            let mut crc = Crc::new();
            crc.update(&png[4..8 + length]);
            assert_eq!(crc.sum().to_be_bytes(), png[8 + length..12 + length]);
            found.push((png[4..8].try_into().unwrap(), png[8..8 + length].to_vec()));
            png = &png[12 + length..];
        }
        found
    }

    #[test]
    fn the_png_holds_the_pixels() {
        let found = chunks(&png(7));
        assert_eq!(
            found.iter().map(|(kind, _)| kind).collect::<Vec<_>>(),
            [b"IHDR", b"IDAT", b"IEND"]
        );
        assert_eq!(found[0].1[..8], [0, 0, 0, 128, 0, 0, 0, 96]);
        let mut lines = Vec::new();
        ZlibDecoder::new(found[1].1.as_slice())
            .read_to_end(&mut lines)
            .unwrap();
        let line = 1 + 3 * usize::from(WIDTH);
        assert_eq!(lines.len(), line * usize::from(HEIGHT));
        let at = 5 * line + 1 + 3 * 9;
        assert_eq!(lines[at..at + 3], pixel(7, 9, 5));
        assert_ne!(png(7), png(8), "numbers are different pictures");
    }
}
