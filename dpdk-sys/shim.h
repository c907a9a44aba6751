/* Functions that DPDK defines as static inline in its headers, as ordinary symbols, and those that fill
 * in or read its large configuration structures. */
#pragma once
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

int shim_errno(void);
uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
/* Frees the whole chain. */
void shim_pktmbuf_free(struct rte_mbuf *mbuf);
/* The data of this segment, and how long it is. */
uint8_t *shim_pktmbuf_data(const struct rte_mbuf *mbuf, uint16_t *len);
struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf);
uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf);
/* Room for len bytes at the end of a single-segment mbuf, or NULL. */
uint8_t *shim_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len);
/* Puts len bytes, to be filled in, in the place of the first skip bytes of a frame. NULL, and nothing
 * is changed, if the mbuf is not in one piece, is shared, or has no room for them. */
uint8_t *shim_pktmbuf_replace_front(struct rte_mbuf *mbuf, uint16_t skip, uint16_t len);

struct shim_device {
	const char *driver;
	/* For rte_dev_remove. */
	struct rte_device *device;
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint16_t mtu_min;
	uint16_t mtu_max;
};
int shim_eth_device(uint16_t port, struct shim_device *device);
/* So many receive queues, spread over by RSS on all that the device can hash, and one transmit queue. */
int shim_eth_configure(uint16_t port, uint16_t rx_queues, uint16_t mtu);

struct shim_link {
	uint32_t speed_mbps;
	uint8_t is_up;
	uint8_t is_full_duplex;
};
int shim_eth_link(uint16_t port, struct shim_link *link);
int shim_eth_mac(uint16_t port, uint8_t mac[6]);
