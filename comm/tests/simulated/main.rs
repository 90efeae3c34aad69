//! Tests of communicators on the simulated network. They are one program, so that their shared code
//! is compiled once.

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod collectives;
mod communicators;
mod counted_out;
mod creations;
mod cut;
mod disagreeing;
mod failures;
mod ft;
mod heartbeats;
mod inter;
mod inter_collectives;
mod inter_kept;
mod inter_parts;
mod jobs;
mod layers;
mod leaders;
mod long;
mod machines;
mod p2p;
mod refused;
mod resting;
mod settings;
mod shared;
mod thousands;
