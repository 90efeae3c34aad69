/* The work over libfabric's tagged messages, without anything above them. FI_PROVIDER chooses the provider.
 *
 * A receive that names its source uses a directed receive.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "measure.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

struct request {
    struct fi_context2 context;
    bool done, cancelled;
    struct request *next;
};
typedef struct request *operation;

static int rank;
static size_t inject_size;
static struct fid_ep *endpoint;
static struct fid_cq *queue;
static fi_addr_t peer;
static struct request *unused;
static const char *provider;

#define TRY(call)                                                          \
    do {                                                                   \
        int status_ = (int)(call);                                         \
        if (status_ != 0)                                                  \
            FAIL("%s: %s", #call, fi_strerror(-status_));                  \
    } while (0)

static inline void progress(void)
{
    struct fi_cq_tagged_entry entries[16];
    ssize_t count = fi_cq_read(queue, entries, 16);
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(queue, &error, 0);
        if (error.err != FI_ECANCELED)
            FAIL("%s", fi_strerror(error.err));
        ((struct request *)error.op_context)->done = true;
        return;
    }
    for (ssize_t i = 0; i < count; i++)
        ((struct request *)entries[i].op_context)->done = true;
}

static inline struct request *new_request(void)
{
    struct request *request = unused;
    if (request == NULL) {
        request = malloc(sizeof *request);
        if (request == NULL)
            FAIL("no memory");
    } else {
        unused = request->next;
    }
    request->done = false;
    return request;
}

static inline void release(struct request *request)
{
    request->next = unused;
    unused = request;
}

static inline void wait_one(operation request)
{
    if (request == NULL)
        return;
    while (!request->done)
        progress();
    release(request);
}

static inline operation start_send(const void *bytes, size_t size, int tag)
{
    ssize_t status;
    if (size <= inject_size) {
        while ((status = fi_tinject(endpoint, bytes, size, peer, (uint64_t)tag)) == -FI_EAGAIN)
            progress();
        TRY(status);
        return NULL;
    }
    struct request *request = new_request();
    while ((status = fi_tsend(endpoint, bytes, size, NULL, peer, (uint64_t)tag, request)) == -FI_EAGAIN)
        progress();
    TRY(status);
    return request;
}

static inline operation start_recv(void *bytes, size_t size, int tag, bool any)
{
    struct request *request = new_request();
    fi_addr_t from = any ? FI_ADDR_UNSPEC : peer;
    TRY(fi_trecv(endpoint, bytes, size, NULL, from, (uint64_t)tag, 0, request));
    return request;
}

static inline void cancel_all(operation *operations, int count)
{
    for (int i = 0; i < count; i++) {
        TRY(fi_cancel(&endpoint->fid, operations[i]));
        wait_one(operations[i]);
    }
}

#include "pair.h"

static struct fid_domain *domain;
static bool has_addresses;
static uint64_t remote, key;

#define START(call)                                                        \
    do {                                                                   \
        ssize_t status_;                                                   \
        while ((status_ = (call)) == -FI_EAGAIN)                           \
            progress();                                                    \
        TRY(status_);                                                      \
    } while (0)

static operation start_put(const void *bytes, size_t size)
{
    struct request *request = new_request();
    START(fi_write(endpoint, bytes, size, NULL, peer, remote, key, request));
    return request;
}

static operation start_get(void *bytes, size_t size)
{
    struct request *request = new_request();
    START(fi_read(endpoint, bytes, size, NULL, peer, remote, key, request));
    return request;
}

static operation start_fetch_add(uint64_t *old)
{
    static const uint64_t one = 1;
    struct request *request = new_request();
    START(fi_fetch_atomic(endpoint, &one, 1, NULL, old, NULL, peer, remote, key, FI_UINT64, FI_SUM, request));
    return request;
}

/* Each put has its completion once it is delivered. */
static void flush(void)
{
}

static void begin_rma(void)
{
    uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    struct fid_mr *region;

    one_sided.region = aligned_bytes(SIZE_MAX_BYTES);
    TRY(fi_mr_reg(domain, one_sided.region, SIZE_MAX_BYTES, access, 0, 17, 0, &region, NULL));
    remote = has_addresses ? (uint64_t)one_sided.region : 0;
    key = fi_mr_key(region);
    tell(&remote, sizeof remote);
    tell(&key, sizeof key);
    hear(&remote, sizeof remote);
    hear(&key, sizeof key);
}

static void connect_sides(void)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fid_fabric *fabric;
    struct fid_av *vector;
    char name[FI_NAME_MAX];
    size_t size = sizeof name;

    if (hints == NULL)
        FAIL("no memory");
    hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (has_rma) {
        hints->caps |= FI_RMA | FI_ATOMIC;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    }
    one_sided.begin = begin_rma;
    one_sided.put = start_put;
    one_sided.get = start_get;
    one_sided.fetch_add = start_fetch_add;
    one_sided.flush = flush;
    one_sided.progress = progress;
    TRY(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
    has_addresses = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    TRY(fi_fabric(info->fabric_attr, &fabric, NULL));
    TRY(fi_domain(fabric, info, &domain, NULL));
    TRY(fi_av_open(domain, &av, &vector, NULL));
    TRY(fi_cq_open(domain, &cq, &queue, NULL));
    TRY(fi_endpoint(domain, info, &endpoint, NULL));
    TRY(fi_ep_bind(endpoint, &vector->fid, 0));
    TRY(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV));
    TRY(fi_enable(endpoint));
    TRY(fi_getname(&endpoint->fid, name, &size));
    provider = info->fabric_attr->prov_name;
    inject_size = info->tx_attr->inject_size;
    tell(name, sizeof name);
    hear(name, sizeof name);
    if (fi_av_insert(vector, name, 1, &peer, 0, NULL) != 1)
        FAIL("fi_av_insert");
    fi_freeinfo(hints);
}

static void print_version(void)
{
    printf("version libfabric %u.%u, %s\n", FI_MAJOR(fi_version()), FI_MINOR(fi_version()), provider);
}
