//! A cable between the gateway and a server of the test's network namespace, which can be pulled.

use crate::support::namespace::ip;

/// The gateway's end: a public address, which is not the server's.
const NEAR: &str = "151.101.193.69";

/// Both ends are in one namespace, where packets to an own address would never see a wire: rules of their own send
/// those of the gateway in at one end and those of the server in at the other.
pub(crate) struct Link;

impl Link {
    /// From now on everything between the gateway and this IPv4 address of the server goes over the cable.
    pub(crate) fn to(server: &str) -> Self {
        ip(&format!(
            "address add {NEAR}/32 dev lo\n\
             link add near type veth peer name far\n\
             link set near up\n\
             link set far up\n"
        ));
        for (device, name, value) in [
            ("near", "accept_local", "1"),
            ("far", "accept_local", "1"),
            ("near", "rp_filter", "0"),
            ("far", "rp_filter", "0"),
            ("all", "rp_filter", "0"),
        ] {
            let place = format!("/proc/sys/net/ipv4/conf/{device}/{name}");
            std::fs::write(place, value).expect("a setting of the namespace");
        }
        ip(&format!(
            "rule add pref 100 lookup local\n\
             rule add pref 10 iif lo to {server} lookup 10\n\
             rule add pref 11 iif lo from {server} to {NEAR} lookup 11\n\
             rule del pref 0\n\
             route add default dev near src {NEAR} table 10\n\
             route add default dev far table 11\n\
             route add unreachable default metric 9 table 11\n"
        ));
        Self
    }

    /// Pulls it. Nobody is told: what is sent is lost.
    pub(crate) fn down(&self) {
        ip("link set far down\n");
    }

    /// Plugs it in again.
    pub(crate) fn up(&self) {
        ip("link set far up\nroute replace default dev far table 11\n");
    }
}
