/* Asserts that what tagmatch-rdma-core-sys declares is what the installed infiniband/verbs.h says;
 * see ci/parts/headers. facts.inc is printed by its example verbs_layout: one line a fact. */
#include <infiniband/verbs.h>
#include <stddef.h>

/* Names for types that C leaves without a name, or with a tag only. */
#define NAMED(outer, member, name) typedef typeof(((outer *)0)->member) name
NAMED(union ibv_gid, global, ibv_gid_global);
NAMED(struct ibv_async_event, element, ibv_async_event_element);
NAMED(struct ibv_send_wr, wr, ibv_send_wr_wr);
NAMED(struct ibv_send_wr, wr.rdma, ibv_send_wr_rdma);
NAMED(struct ibv_send_wr, wr.atomic, ibv_send_wr_atomic);
NAMED(struct ibv_send_wr, wr.ud, ibv_send_wr_ud);
NAMED(struct ibv_ops_wr, tm, ibv_ops_wr_tm);
NAMED(struct ibv_ops_wr, tm.add, ibv_ops_wr_add);
#define ibv_gid union ibv_gid

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define FIELD(type, field, offset, size)                                                          \
	_Static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field);          \
	_Static_assert(sizeof(((type *)0)->field) == (size), "size of " #type "." #field);
#define VALUE(name, value)                                                                         \
	_Static_assert((unsigned long long)(long long)(name) == (value##ull), "value of " #name);
#define EXTENDED(field, distance)                                                                  \
	_Static_assert(offsetof(struct verbs_context, context) -                                   \
			       offsetof(struct verbs_context, field) == (distance),                \
		       "distance of " #field);

#include "facts.inc"
