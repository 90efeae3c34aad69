//! What goes wrong with packets on purpose: they are lost, repeated, or come late.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::dice::Dice;
use crate::roce::link::{PacketLink, WirePath};
use crate::roce::packet::RocePacket;
use crate::settings::Settings;

/// A packet that was held back goes out after so long, if none that follows has pushed it out.
const LATE: Duration = Duration::from_millis(2);

/// A third, in parts per million.
const THIRD: u32 = 333_333;

/// Probabilities in parts per million, drawn from the seed.
#[derive(Debug, Default)]
pub(crate) struct Disorder {
    loss: u32,
    duplication: u32,
    reordering: u32,
    dice: Dice,
    held: Mutex<Vec<(Instant, WirePath, RocePacket)>>,
}

impl Disorder {
    pub(crate) fn new(settings: &Settings) -> Self {
        let knobs = &settings.knobs;
        Disorder {
            loss: knobs.loss,
            duplication: knobs.duplication,
            reordering: knobs.reordering,
            dice: Dice::new(settings.model.seed),
            held: Mutex::default(),
        }
    }

    /// Whether a packet is lost.
    pub(crate) fn loses(&self) -> bool {
        self.dice.happens(self.loss)
    }

    /// Sends a packet, unless it is lost or held back.
    pub(crate) fn send(&self, link: &dyn PacketLink, path: &WirePath, packet: &RocePacket) {
        if self.loses() {
            return;
        }
        if self.dice.happens(self.reordering) {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push((Instant::now(), *path, packet.clone()));
            return;
        }
        link.send(path, packet);
        if self.dice.happens(self.duplication) {
            link.send(path, packet);
        }
        // One to four packets overtake it.
        if self.reordering > 0 && self.dice.happens(THIRD) {
            self.release(link, Duration::ZERO);
        }
    }

    /// Sends packets that were held back long enough.
    pub(crate) fn send_late(&self, link: &dyn PacketLink) {
        if self.reordering > 0 {
            self.release(link, LATE);
        }
    }

    fn release(&self, link: &dyn PacketLink, after: Duration) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let due = held.extract_if(.., |(since, ..)| since.elapsed() >= after);
        let due: Vec<_> = due.collect();
        drop(held);
        for (_, path, packet) in due {
            link.send(&path, &packet);
        }
    }
}
