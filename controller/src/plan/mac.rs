//! The MAC address of a machine: the same at every start, so that the guest's saved network
//! configuration goes on matching.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// `02:` (locally administered, unicast) and the low 40 bits of FNV-1a-64 over the name.
///
/// Machines of equal name in two namespaces have the same address. That is harmless: masquerade
/// gives each machine a network of its own behind its pod.
pub(crate) fn address(workspace: &str) -> String {
    let hash = fnv1a(workspace.as_bytes()).to_be_bytes();
    let tail: Vec<String> = hash[3..].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("02:{}", tail.join(":"))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_addresses_stay() {
        for (name, mac) in [
            ("my-ws", "02:de:93:f1:06:cc"),
            ("cf-debian-gnome-vm-0", "02:05:af:92:be:5e"),
            ("cf-debian-vm-0", "02:34:04:98:f0:55"),
            ("a", "02:4c:86:01:ec:8c"),
        ] {
            assert_eq!(address(name), mac, "{name}");
        }
    }

    #[test]
    fn the_hash_is_fnv1a() {
        // Test vectors of the FNV reference, `fnv_test_str`.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
