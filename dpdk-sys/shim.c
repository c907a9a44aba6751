#include "shim.h"

int shim_errno(void) { return rte_errno; }

uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool) { return rte_pktmbuf_alloc(pool); }

void shim_pktmbuf_free(struct rte_mbuf *mbuf) { rte_pktmbuf_free(mbuf); }

uint8_t *shim_pktmbuf_data(const struct rte_mbuf *mbuf, uint16_t *len)
{
	*len = rte_pktmbuf_data_len(mbuf);
	return rte_pktmbuf_mtod(mbuf, uint8_t *);
}

struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf) { return mbuf->next; }

uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf) { return rte_pktmbuf_pkt_len(mbuf); }

uint8_t *shim_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len)
{
	return (uint8_t *)rte_pktmbuf_append(mbuf, len);
}

uint8_t *shim_pktmbuf_replace_front(struct rte_mbuf *mbuf, uint16_t skip, uint16_t len)
{
	if (mbuf->nb_segs != 1 || rte_mbuf_refcnt_read(mbuf) != 1 || !RTE_MBUF_DIRECT(mbuf) ||
	    mbuf->data_len < skip || rte_pktmbuf_headroom(mbuf) + skip < len)
		return NULL;
	mbuf->data_off += skip - len;
	mbuf->data_len += len - skip;
	mbuf->pkt_len += len - skip;
	/* What the device said about the frame it received is not to be obeyed when it is sent. */
	mbuf->ol_flags = 0;
	return rte_pktmbuf_mtod(mbuf, uint8_t *);
}

int shim_eth_device(uint16_t port, struct shim_device *device)
{
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	device->driver = info.driver_name;
	device->device = info.device;
	device->rx_queues_max = info.max_rx_queues;
	device->tx_queues_max = info.max_tx_queues;
	device->mtu_min = info.min_mtu;
	device->mtu_max = info.max_mtu;
	return 0;
}

int shim_eth_configure(uint16_t port, uint16_t rx_queues, uint16_t mtu)
{
	struct rte_eth_conf conf = { .rxmode = { .mtu = mtu } };
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	if (rx_queues > 1 && info.flow_type_rss_offloads) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	}
	return rte_eth_dev_configure(port, rx_queues, 1, &conf);
}

int shim_eth_link(uint16_t port, struct shim_link *link)
{
	struct rte_eth_link now;
	int failed = rte_eth_link_get_nowait(port, &now);

	if (failed)
		return failed;
	link->speed_mbps = now.link_speed;
	link->is_up = now.link_status;
	link->is_full_duplex = now.link_duplex;
	return 0;
}

int shim_eth_mac(uint16_t port, uint8_t mac[6])
{
	struct rte_ether_addr address;
	int failed = rte_eth_macaddr_get(port, &address);

	if (!failed)
		memcpy(mac, address.addr_bytes, 6);
	return failed;
}
