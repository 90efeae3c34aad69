//! TCP: the device for networks without RDMA.
mod accept;
mod address;
mod busy;
mod clock;
mod config;
mod connect;
mod connection;
mod device;
mod ending;
mod exposure;
mod frame;
mod greeting;
mod handshake;
mod inbox;
mod leaving;
mod listeners;
mod numbers;
mod peers;
mod poll;
mod reads;
mod ready;
mod send_half;
mod sleep;
mod strangers;

pub use config::TcpConfig;
pub use device::Tcp;
pub use tagmatch_secret::Secret;
