//! The NoCloud medium: an ISO 9660 image labelled `cidata`, as cloud-init's NoCloud data source looks for it.
//!
//! Written here, since three small files in one directory need no tool in the launcher image. ECMA-119 section numbers
//! stand beside what they define. Entry point: [`image`].

use super::seed::Seed;

const SECTOR: usize = 2048;
const LABEL: &[u8] = b"cidata";
/// Sectors: 0..16 system area, 16 primary descriptor, 17 terminator, 18 and 19 path tables, 20 root directory.
const PATH_TABLE_LE: usize = 18;
const PATH_TABLE_BE: usize = 19;
const ROOT: usize = 20;
const FIRST_FILE: usize = 21;
/// Empty sectors at the end, as genisoimage has them: small readers of labels (busybox's findfs for one) read 68 KiB at
/// once, and see no label on a medium that is shorter.
const PADDING: usize = 150;
/// A path table that has the root directory only: one entry of 10 bytes (§9.4).
const PATH_TABLE_BYTES: u32 = 10;

/// The medium that holds `input`.
pub fn image(input: &Seed) -> Vec<u8> {
    let meta = meta_data(input);
    let mut files: Vec<(&[u8], &[u8])> = vec![
        (b"META-DATA;1", meta.as_bytes()),
        (b"USER-DATA;1", &input.user_data),
    ];
    if let Some(network) = &input.network_data {
        files.insert(1, (b"NETWORK-CONFIG;1", network));
    }
    iso9660(&files)
}

/// JSON is YAML, and cannot be broken by what is in the values.
fn meta_data(input: &Seed) -> String {
    serde_json::json!({ "instance-id": input.instance_id, "local-hostname": input.hostname })
        .to_string()
        + "\n"
}

/// `files` in the order of their names (§9.3).
fn iso9660(files: &[(&[u8], &[u8])]) -> Vec<u8> {
    let sectors = |bytes: usize| bytes.div_ceil(SECTOR).max(1);
    let total = FIRST_FILE
        + files
            .iter()
            .map(|(_, data)| sectors(data.len()))
            .sum::<usize>()
        + PADDING;
    let mut image = vec![0; total * SECTOR];
    let mut root = Vec::with_capacity(SECTOR);
    root.extend(record(ROOT, SECTOR, true, &[0]));
    root.extend(record(ROOT, SECTOR, true, &[1]));
    let mut at = FIRST_FILE;
    for (name, data) in files {
        root.extend(record(at, data.len(), false, name));
        put(&mut image, at * SECTOR, data);
        at += sectors(data.len());
    }
    put(&mut image, 16 * SECTOR, &primary_descriptor(total));
    put(&mut image, 17 * SECTOR, b"\xffCD001\x01");
    let (le, be) = path_tables();
    put(&mut image, PATH_TABLE_LE * SECTOR, &le);
    put(&mut image, PATH_TABLE_BE * SECTOR, &be);
    put(&mut image, ROOT * SECTOR, &root);
    image
}

/// A directory record (§9.1).
fn record(extent: usize, length: usize, directory: bool, name: &[u8]) -> Vec<u8> {
    let padded = 33 + name.len() + (1 - name.len() % 2);
    let mut record = vec![0; padded];
    record[0] = padded as u8;
    put(&mut record, 2, &both(extent as u32));
    put(&mut record, 10, &both(length as u32));
    // 18..25: the date; 2000-01-01 00:00:00, so that equal input is an equal image
    put(&mut record, 18, &[100, 1, 1, 0, 0, 0, 0]);
    record[25] = u8::from(directory) << 1;
    put(&mut record, 28, &both16(1));
    record[32] = name.len() as u8;
    put(&mut record, 33, name);
    record
}

/// The primary volume descriptor (§8.4).
fn primary_descriptor(sectors: usize) -> Vec<u8> {
    let mut d = vec![0; SECTOR];
    put(&mut d, 0, b"\x01CD001\x01");
    d[8..72].fill(b' ');
    put(&mut d, 40, LABEL);
    put(&mut d, 80, &both(sectors as u32));
    put(&mut d, 120, &both16(1));
    put(&mut d, 124, &both16(1));
    put(&mut d, 128, &both16(SECTOR as u16));
    put(&mut d, 132, &both(PATH_TABLE_BYTES));
    put(&mut d, 140, &(PATH_TABLE_LE as u32).to_le_bytes());
    put(&mut d, 148, &(PATH_TABLE_BE as u32).to_be_bytes());
    put(&mut d, 156, &record(ROOT, SECTOR, true, &[0]));
    d[190..813].fill(b' ');
    for date in [813, 830, 847, 864] {
        // an unset date is sixteen zeros in digits and a zero offset (§8.4.26.1)
        d[date..date + 16].fill(b'0');
    }
    d[881] = 1;
    d
}

/// The path tables, little- and big-endian (§9.4).
fn path_tables() -> (Vec<u8>, Vec<u8>) {
    let root = ROOT as u32;
    let table =
        |extent: [u8; 4], parent: [u8; 2]| [&[1, 0][..], &extent, &parent, &[0, 0]].concat();
    (
        table(root.to_le_bytes(), 1u16.to_le_bytes()),
        table(root.to_be_bytes(), 1u16.to_be_bytes()),
    )
}

/// A number in both byte orders (§7.3.3).
fn both(n: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    bytes[4..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// A short number in both byte orders (§7.2.3).
fn both16(n: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (n.to_le_bytes(), n.to_be_bytes());
    [a, b, c, d]
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(user_data: &str) -> Seed {
        Seed {
            user_data: user_data.into(),
            network_data: None,
            hostname: "demo".into(),
            instance_id: "i-1".into(),
        }
    }

    /// The file's bytes, found through the root directory as a reader finds them.
    fn read<'a>(image: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
        let mut at = word(16 * SECTOR + 156 + 2) * SECTOR;
        while image[at] != 0 {
            let length = image[at + 32] as usize;
            if &image[at + 33..at + 33 + length] == name.as_bytes() {
                let start = word(at + 2) * SECTOR;
                return Some(&image[start..start + word(at + 10)]);
            }
            at += image[at] as usize;
        }
        None
    }

    #[test]
    fn files_come_back_as_they_went_in() {
        for user_data in [
            "",
            "#cloud-config\n{}\n",
            &"x".repeat(SECTOR),
            &"y".repeat(70_000),
        ] {
            let image = image(&input(user_data));
            assert_eq!(image.len() % SECTOR, 0);
            assert!(
                image.len() > 68 << 10,
                "findfs sees no label on a shorter one"
            );
            assert_eq!(read(&image, "USER-DATA;1").unwrap(), user_data.as_bytes());
            assert_eq!(
                read(&image, "META-DATA;1").unwrap(),
                b"{\"instance-id\":\"i-1\",\"local-hostname\":\"demo\"}\n"
            );
            assert_eq!(read(&image, "NETWORK-CONFIG;1"), None);
        }
    }

    #[test]
    fn network_data_is_a_file_of_its_own() {
        let with = Seed {
            network_data: Some("version: 2\n".into()),
            ..input("u")
        };
        assert_eq!(
            read(&image(&with), "NETWORK-CONFIG;1").unwrap(),
            b"version: 2\n"
        );
    }

    #[test]
    fn the_label_is_where_blkid_reads_it() {
        let image = image(&input("u"));
        assert_eq!(&image[16 * SECTOR + 1..16 * SECTOR + 6], b"CD001");
        assert_eq!(
            &image[16 * SECTOR + 40..16 * SECTOR + 72],
            format!("{:<32}", "cidata").as_bytes()
        );
    }

    #[test]
    fn equal_input_is_an_equal_image() {
        assert_eq!(image(&input("a")), image(&input("a")));
    }
}
