//! Address ranges and whether they overlap.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address range in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subnet {
    address: IpAddr,
    length: u8,
}

impl Subnet {
    /// The range of this address and prefix length; none when the length is too long.
    pub(super) fn new(address: IpAddr, length: u8) -> Option<Self> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (length <= longest).then_some(Self { address, length })
    }

    /// Whether an address is in both. A range that holds every address (a default route) overlaps nothing here.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let shorter = self.length.min(other.length);
        shorter > 0
            && self.address.is_ipv4() == other.address.is_ipv4()
            && self.prefix(shorter) == other.prefix(shorter)
    }

    /// The first `length` bits.
    fn prefix(self, length: u8) -> u128 {
        match self.address {
            IpAddr::V4(v4) => u128::from(u32::from(v4) >> (32 - length)),
            IpAddr::V6(v6) => u128::from(v6) >> (128 - length),
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Subnet {
    type Err = ();

    /// `ADDRESS/LENGTH`, or an address alone.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = text
            .split_once('/')
            .map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let length = match length {
            Some(length) => length.parse().map_err(|_| ())?,
            None => {
                if address.is_ipv4() {
                    32
                } else {
                    128
                }
            }
        };
        Self::new(address, length).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_when_one_holds_the_other() {
        for (a, b, want) in [
            ("10.0.0.0/8", "10.244.0.0/16", true),
            ("10.244.1.0/24", "10.244.2.0/24", false),
            ("192.0.2.2", "192.0.2.0/24", true),
            ("192.0.2.2/24", "192.0.2.77/32", true),
            ("0.0.0.0/0", "10.0.0.0/8", false),
            ("fd00::/64", "fd00::1", true),
            ("fd00::/64", "fd00:0:0:1::/64", false),
            ("::10.0.0.0/104", "10.0.0.0/8", false),
            ("1.2.3.4/32", "1.2.3.4/32", true),
        ] {
            let (left, right): (Subnet, Subnet) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(left.overlaps(right), want, "{a} {b}");
            assert_eq!(right.overlaps(left), want, "{b} {a}");
        }
        for bad in ["", "default", "10.0.0.0/33", "fd00::/129", "10.0.0.0/x"] {
            assert_eq!(bad.parse::<Subnet>(), Err(()), "{bad}");
        }
    }
}
