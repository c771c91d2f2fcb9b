//! What a display shows: by a screenshot, and by an RFB client that is not ours.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::TcpStream;
use vnc::{PixelFormat, VncClient, VncConnector, VncEncoding, VncEvent, X11Event};

/// How long the first whole picture may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Points in rows, each red, green and blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    points: Vec<[u8; 3]>,
}

impl Picture {
    /// A PNG's.
    ///
    /// # Errors
    /// When it is none, or of a kind that a display does not give.
    pub fn of_png(file: &[u8]) -> Result<Self> {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
        let mut reader = decoder.read_info()?;
        let mut pixels = vec![0; reader.output_buffer_size().context("too large")?];
        let frame = reader.next_frame(&mut pixels)?;
        let size = match frame.color_type {
            png::ColorType::Rgb => 3,
            png::ColorType::Rgba => 4,
            other => bail!("the screenshot is {other:?}"),
        };
        let points = pixels[..frame.buffer_size()].chunks_exact(size);
        Ok(Self {
            width: frame.width.try_into()?,
            points: points.map(|p| [p[0], p[1], p[2]]).collect(),
        })
    }

    /// The first whole picture that an RFB server sends.
    ///
    /// # Errors
    /// When it sends none.
    pub async fn of_display(connection: TcpStream) -> Result<Self> {
        let client = VncConnector::new(connection)
            .set_auth_method(async { Ok(String::new()) })
            .add_encoding(VncEncoding::Raw)
            .allow_shared(true)
            .set_pixel_format(PixelFormat::rgba())
            .build()?
            .try_start()
            .await?
            .finish()?;
        tokio::time::timeout(PATIENCE, Self::whole(&client)).await?
    }

    async fn whole(client: &VncClient) -> Result<Self> {
        let mut picture = Self {
            width: 0,
            points: Vec::new(),
        };
        let mut missing = usize::MAX;
        while missing > 0 {
            match client.recv_event().await? {
                VncEvent::SetResolution(screen) => {
                    picture.width = screen.width.into();
                    missing = picture.width * usize::from(screen.height);
                    picture.points = vec![[0; 3]; missing];
                    client.input(X11Event::Refresh).await?;
                }
                VncEvent::RawImage(at, data) => {
                    picture.put(at.x.into(), at.y.into(), at.width.into(), &data)?;
                    missing = missing.saturating_sub(data.len() / 4);
                }
                VncEvent::Error(error) => bail!("{error}"),
                _ => {}
            }
        }
        Ok(picture)
    }

    fn put(&mut self, x: usize, y: usize, width: usize, data: &[u8]) -> Result<()> {
        ensure!(width > 0, "a rectangle without width");
        for (row, line) in data.chunks_exact(width * 4).enumerate() {
            let start = (y + row) * self.width + x;
            let to = self.points.get_mut(start..start + width);
            let to = to.context("a rectangle outside of the display")?;
            for (to, from) in to.iter_mut().zip(line.chunks_exact(4)) {
                *to = [from[0], from[1], from[2]];
            }
        }
        Ok(())
    }

    /// How many colours it has.
    pub fn colours(&self) -> usize {
        let colours: std::collections::HashSet<_> = self.points.iter().collect();
        colours.len()
    }

    /// In how many points it differs from another one.
    ///
    /// # Errors
    /// When they are not of one size.
    pub fn differing(&self, other: &Self) -> Result<usize> {
        let size = |p: &Self| (p.width, p.points.len());
        ensure!(
            size(self) == size(other),
            "{:?} against {:?}",
            size(self),
            size(other)
        );
        let pairs = self.points.iter().zip(&other.points);
        Ok(pairs.filter(|(a, b)| a != b).count())
    }
}
