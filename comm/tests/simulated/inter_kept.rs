//! Attributes and error handlers of intercommunicators, on the simulated network.

use std::sync::{Arc, Mutex};

use common::inter_coll::run_on;
use tagmatch_comm::{Error, ErrorClass, ErrorHandler, InterComm, InterRoot, Keyval};

use crate::common::{self, TestNet};

#[test]
fn handlers_are_called_once_per_error_and_are_inherited() {
    run_on([2, 2], 1, &[], |member, inter| async move {
        let errors: Arc<Mutex<Vec<(u32, u32, ErrorClass)>>> = Arc::default();
        let news = || -> Vec<_> { errors.lock().unwrap().drain(..).collect() };
        let hears = Arc::clone(&errors);
        assert!(matches!(inter.error_handler(), ErrorHandler::Returns));
        inter.set_error_handler(ErrorHandler::calls(move |inter: &InterComm<TestNet>, error| {
            let ids = (inter.id().bits(), inter.remote_id().bits());
            assert_eq!(inter.local().unwrap().size(), 2);
            hears.lock().unwrap().push((ids.0, ids.1, error.class()));
        }));
        assert!(matches!(inter.error_handler(), ErrorHandler::Calls(_)));
        let copy = inter.dup().await.unwrap();
        let small = inter.shrink().await.unwrap();
        let part = inter.split(Some(0), 0).await.unwrap().unwrap();
        for inter in [&inter, &copy, &small, &part] {
            let due = [(inter.id().bits(), inter.remote_id().bits(), ErrorClass::Argument)];
            assert!(inter.broadcast(InterRoot::Remote(9), vec![]).await.is_err());
            assert_eq!(news(), due);
            assert!(inter.send(9, 1, vec![]).await.is_err());
            assert_eq!(news(), due);
            assert!(inter.probe(9, 1).is_err());
            assert_eq!(news(), due);
        }
        // The local communicator has an error handler of its own, and none at the beginning.
        let local = inter.local().unwrap();
        assert!(local.broadcast(9, vec![]).await.is_err());
        assert_eq!(news(), []);
        copy.set_error_handler(ErrorHandler::Returns);
        assert!(copy.send(9, 1, vec![]).await.is_err());
        assert_eq!(news(), []);
        inter.barrier().await.unwrap();
        // A handler may use the intercommunicator that has the error.
        small
            .set_error_handler(ErrorHandler::calls(|inter: &InterComm<TestNet>, _| inter.revoke()));
        if member.is_first && small.rank() == 0 {
            assert!(small.send(9, 1, vec![]).await.is_err());
        }
        while !small.is_revoked() {
            small.failed();
            common::turn().await;
        }
        assert_eq!(small.barrier().await, Err(Error::Revoked));
    });
}

#[test]
fn attributes_go_to_duplicates_alone_and_are_deleted() {
    run_on([1, 2], 2, &[], |_, inter| async move {
        let deleted: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
        let deletes = Arc::clone(&deleted);
        let depth = Keyval::new(
            |_, depth: &u32| Ok((*depth < 2).then_some(depth + 1)),
            move |info, depth| deletes.lock().unwrap().push((info.id.bits(), *depth)),
        );
        inter.set_attribute(&depth, 0);
        let copy = inter.dup().await.unwrap();
        let small = inter.shrink().await.unwrap();
        let again = copy.dup().await.unwrap().dup().await.unwrap();
        let values = [&inter, &copy, &small, &again].map(|inter| inter.attribute(&depth));
        assert_eq!(values.map(|value| value.as_deref().copied()), [Some(0), Some(1), None, None]);
        // The one in between is gone.
        assert_eq!(std::mem::take(&mut *deleted.lock().unwrap()).len(), 1);
        assert!(copy.delete_attribute(&depth) && !copy.delete_attribute(&depth));
        let own = inter.id().bits();
        drop(inter);
        let due = [(copy.id().bits(), 1), (own, 0)];
        assert_eq!(*deleted.lock().unwrap(), due);
        // If an attribute can't be copied, the duplication fails with that error in this process.
        let refused = Error::Tag { tag: 1, max: 0 };
        let refuses = Keyval::new(
            {
                let refused = refused.clone();
                move |_, refuses: &bool| if *refuses { Err(refused.clone()) } else { Ok(None) }
            },
            |_, _| (),
        );
        let fails = copy.rank() == 1;
        copy.set_attribute(&refuses, fails);
        let made = copy.dup().await;
        assert_eq!(made.err(), fails.then_some(refused));
    });
}
