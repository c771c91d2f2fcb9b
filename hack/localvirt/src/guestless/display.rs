//! A display without a guest: RFB 3.3, 3.7 and 3.8 (RFC 6143) with the one picture that [`picture`] draws.
//!
//! Every key that goes down changes the picture. Raw encoding only, in the client's pixel format.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::{
    board::Board,
    picture::{HEIGHT, WIDTH, pixel},
    play::runs,
};

const NAME: &[u8] = b"localvirt";
/// Longest text that a client may cut; what is longer ends the stream.
const MAX_CUT_TEXT: u64 = 1 << 20;

/// How a client wants its pixels (RFC 6143 §7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PixelFormat {
    bytes: usize,
    big_endian: bool,
    max: [u16; 3],
    shift: [u8; 3],
}

/// What a client asks to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    incremental: bool,
    x: u16,
    y: u16,
    width: u16,
    height: u16,
}

/// Serves one viewer. `restless` shows another picture each time.
///
/// # Errors
/// When the viewer goes, or does not speak RFB.
pub(super) async fn serve(
    stream: &mut DuplexStream,
    board: &Board,
    restless: bool,
) -> io::Result<()> {
    runs(board).await;
    greet(stream).await?;
    let mut picture = board.picture.subscribe();
    let mut format = PixelFormat::default();
    let mut waiting: Option<Area> = None;
    loop {
        tokio::select! {
            kind = stream.read_u8() => match kind? {
                0 => format = PixelFormat::read(stream).await?,
                2 => skip_encodings(stream).await?,
                3 => waiting = Some(Area::read(stream).await?),
                4 => key(stream, board).await?,
                5 => skip(stream, 5).await?,
                6 => skip_text(stream).await?,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            },
            _ = picture.changed(), if waiting.is_some_and(|area| area.incremental) => {
                waiting = waiting.map(|area| Area { incremental: false, ..area });
            }
        }
        if let Some(area) = waiting.filter(|area| restless || !area.incremental) {
            runs(board).await;
            if restless {
                next_picture(board);
            }
            let number = *picture.borrow_and_update();
            stream.write_all(&update(area, number, format)).await?;
            waiting = None;
        }
    }
}

fn next_picture(board: &Board) {
    board
        .picture
        .send_modify(|number| *number = number.wrapping_add(1));
}

/// Versions, security (none) and the two inits (RFC 6143 §7.1 to §7.3, appendix A for the old versions).
async fn greet(stream: &mut DuplexStream) -> io::Result<()> {
    stream.write_all(b"RFB 003.008\n").await?;
    let mut version = [0; 12];
    stream.read_exact(&mut version).await?;
    match &version {
        b"RFB 003.003\n" => stream.write_all(&[0, 0, 0, 1]).await?,
        b"RFB 003.007\n" | b"RFB 003.008\n" => {
            stream.write_all(&[1, 1]).await?;
            if stream.read_u8().await? != 1 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if version[10] == b'8' {
                stream.write_all(&[0; 4]).await?;
            }
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    // Whether it would share the display, which has one viewer anyway.
    stream.read_u8().await?;
    let mut init = Vec::new();
    init.extend(WIDTH.to_be_bytes());
    init.extend(HEIGHT.to_be_bytes());
    init.extend([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]);
    init.extend((NAME.len() as u32).to_be_bytes());
    init.extend(NAME);
    stream.write_all(&init).await
}

async fn key(stream: &mut DuplexStream, board: &Board) -> io::Result<()> {
    let down = stream.read_u8().await? != 0;
    skip(stream, 6).await?;
    if down && !*board.paused.borrow() {
        next_picture(board);
    }
    Ok(())
}

async fn skip_encodings(stream: &mut DuplexStream) -> io::Result<()> {
    stream.read_u8().await?;
    let count = stream.read_u16().await?;
    skip(stream, 4 * u64::from(count)).await
}

async fn skip_text(stream: &mut DuplexStream) -> io::Result<()> {
    skip(stream, 3).await?;
    let length = u64::from(stream.read_u32().await?);
    if length > MAX_CUT_TEXT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    skip(stream, length).await
}

async fn skip(stream: &mut DuplexStream, length: u64) -> io::Result<()> {
    let skipped = tokio::io::copy(&mut stream.take(length), &mut tokio::io::sink()).await?;
    if skipped == length {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Default for PixelFormat {
    fn default() -> Self {
        Self {
            bytes: 4,
            big_endian: false,
            max: [255; 3],
            shift: [16, 8, 0],
        }
    }
}

impl PixelFormat {
    async fn read(stream: &mut DuplexStream) -> io::Result<Self> {
        let mut raw = [0; 19];
        stream.read_exact(&mut raw).await?;
        let [_, _, _, bits, _, big_endian, _, rest @ ..] = raw;
        let bytes = match bits {
            8 | 16 | 32 => usize::from(bits / 8),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let max = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        Ok(Self {
            bytes,
            big_endian: big_endian != 0,
            max: [max(0), max(2), max(4)],
            shift: [rest[6], rest[7], rest[8]],
        })
    }

    fn encode(&self, colour: [u8; 3], out: &mut Vec<u8>) {
        let mut value = 0_u32;
        for ((level, max), shift) in colour.into_iter().zip(self.max).zip(self.shift) {
            let scaled = (u32::from(level) * u32::from(max) + 127) / 255;
            value |= scaled.checked_shl(u32::from(shift)).unwrap_or_default();
        }
        if self.big_endian {
            out.extend(&value.to_be_bytes()[4 - self.bytes..]);
        } else {
            out.extend(&value.to_le_bytes()[..self.bytes]);
        }
    }
}

impl Area {
    async fn read(stream: &mut DuplexStream) -> io::Result<Self> {
        let incremental = stream.read_u8().await? != 0;
        let (x, y) = (stream.read_u16().await?, stream.read_u16().await?);
        let (width, height) = (stream.read_u16().await?, stream.read_u16().await?);
        let (x, y) = (x.min(WIDTH), y.min(HEIGHT));
        Ok(Self {
            incremental,
            x,
            y,
            width: width.min(WIDTH - x),
            height: height.min(HEIGHT - y),
        })
    }
}

/// A FramebufferUpdate of one raw rectangle (RFC 6143 §7.6.1).
fn update(area: Area, number: u32, format: PixelFormat) -> Vec<u8> {
    let Area {
        x,
        y,
        width,
        height,
        ..
    } = area;
    let mut out = vec![0, 0, 0, 1];
    for word in [x, y, width, height] {
        out.extend(word.to_be_bytes());
    }
    out.extend([0; 4]);
    for line in y..y + height {
        for column in x..x + width {
            format.encode(pixel(number, column, line), &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dial::Duplex,
        guestless::{Guestless, Script},
        launcher::protocol::Request,
    };

    type Viewer = Box<dyn Duplex>;

    async fn viewer(script: Script) -> Viewer {
        let machines = Guestless::default();
        machines.boot("uid", false);
        let request = Request::Vnc {
            preserve_session: false,
        };
        machines.ask("uid", script, &request).await.unwrap().stream
    }

    async fn expect(viewer: &mut Viewer, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        viewer.read_exact(&mut got).await.unwrap();
        assert_eq!(got, bytes);
    }

    async fn start(viewer: &mut Viewer) {
        expect(viewer, b"RFB 003.008\n").await;
        viewer.write_all(b"RFB 003.008\n").await.unwrap();
        expect(viewer, &[1, 1]).await;
        viewer.write_all(&[1]).await.unwrap();
        expect(viewer, &[0; 4]).await;
        viewer.write_all(&[1]).await.unwrap();
        expect(viewer, &[0, 128, 0, 96, 32, 24]).await;
        let mut rest = [0; 18 + NAME.len()];
        viewer.read_exact(&mut rest).await.unwrap();
    }

    /// Asks for the pixel at 3, 2 and reads it.
    async fn look(viewer: &mut Viewer, incremental: bool) -> [u8; 4] {
        viewer
            .write_all(&[3, u8::from(incremental), 0, 3, 0, 2, 0, 1, 0, 1])
            .await
            .unwrap();
        expect(viewer, &[0, 0, 0, 1, 0, 3, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0]).await;
        let mut pixel = [0; 4];
        viewer.read_exact(&mut pixel).await.unwrap();
        pixel
    }

    fn shown(number: u32) -> [u8; 4] {
        let [red, green, blue] = pixel(number, 3, 2);
        [blue, green, red, 0]
    }

    #[tokio::test]
    async fn a_viewer_sees_the_picture_and_a_key_changes_it() {
        let mut viewer = viewer(Script::Echo).await;
        start(&mut viewer).await;
        // SetEncodings, a pointer and a cut text are taken in between.
        viewer.write_all(&[2, 0, 0, 1, 0, 0, 0, 0]).await.unwrap();
        viewer.write_all(&[5, 0, 0, 1, 0, 1]).await.unwrap();
        viewer
            .write_all(&[6, 0, 0, 0, 0, 0, 0, 2, b'h', b'i'])
            .await
            .unwrap();
        assert_eq!(look(&mut viewer, false).await, shown(0));
        viewer
            .write_all(&[4, 1, 0, 0, 0, 0, 0, b'a'])
            .await
            .unwrap();
        assert_eq!(look(&mut viewer, true).await, shown(1));
    }

    #[tokio::test]
    async fn a_flood_shows_another_picture_each_time() {
        let mut viewer = viewer(Script::Flood).await;
        start(&mut viewer).await;
        assert_eq!(look(&mut viewer, true).await, shown(1));
        assert_eq!(look(&mut viewer, true).await, shown(2));
    }

    #[tokio::test]
    async fn what_is_no_rfb_ends_the_stream() {
        for greeting in [b"RFB 004.000\n".as_slice(), b"GET / HTTP/1.1\r\n\r\n"] {
            let mut viewer = viewer(Script::Echo).await;
            viewer.write_all(greeting).await.unwrap();
            let mut seen = Vec::new();
            viewer.read_to_end(&mut seen).await.unwrap();
            assert_eq!(seen, b"RFB 003.008\n");
        }
    }

    #[test]
    fn pixels_are_in_the_clients_format() {
        let rgb565 = PixelFormat {
            bytes: 2,
            big_endian: true,
            max: [31, 63, 31],
            shift: [11, 5, 0],
        };
        let mut out = Vec::new();
        rgb565.encode([255, 0, 255], &mut out);
        assert_eq!(out, [0xf8, 0x1f]);
    }

    #[test]
    fn an_update_is_inside_the_screen() {
        let area = Area {
            incremental: false,
            x: 0,
            y: 0,
            width: WIDTH,
            height: HEIGHT,
        };
        let bytes = 4 * usize::from(WIDTH) * usize::from(HEIGHT);
        assert_eq!(update(area, 0, PixelFormat::default()).len(), 16 + bytes);
    }
}
